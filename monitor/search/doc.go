// SPDX-License-Identifier: Apache-2.0

// Package search reads messages of a queue or of a dead-letter queue by peeks, which change nothing
// there. A [View] reads those of some identities, or those of a window of enqueued-times. Sequence
// numbers rise with enqueued-time, so a View seeks to a window with an index of what it has read
// before. A partitioned entity has no such order, and is read from its beginning. A [Backlog] keeps
// the identities of what waits, for those who need the same long window again and again.
package search
