// SPDX-License-Identifier: Apache-2.0

// Package verify tries on a namespace what Overdue assumes of Service Bus. Nobody but the service
// can confirm an assumption, so each has a trial: a few operations on queues that exist only for it.
//
// The table of assumptions is the one place that states them. `overdue verify` tries them, and
// docs/internals/servicebus.md shows them.
package verify
