// SPDX-License-Identifier: Apache-2.0

// Package orders holds an example: how a Go test suite uses overdue broker. Its tests
// want overdue on the PATH, hence their build tag.
package orders
