// SPDX-License-Identifier: Apache-2.0

// Package dlq works on dead letters for operators. It peeks at those that fit a filter, takes exactly
// these off their queue, and sends copies of them to another queue or topic.
//
// A peek disturbs nothing. To take dead letters off it has to receive, and it releases those that
// were not chosen, so their delivery counts stay. It never sends a copy twice: see [Resubmission].
package dlq
