// SPDX-License-Identifier: Apache-2.0

// Package search finds messages on a queue or in a dead-letter queue by peeks, which change
// nothing there. What it searches for is a [Want]: by sequence number where that is known, and by
// message-id in a window of enqueued-times otherwise. Sequence numbers rise with enqueued-time, so
// a [View] seeks to a window with an index of what it has read before, and one page serves all
// that is searched for. A partitioned entity has no such order, and is read from its beginning.
package search
