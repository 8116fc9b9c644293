// SPDX-License-Identifier: Apache-2.0

// Package dlq is how operators go through dead letters: look at those that fit a filter, take
// exactly these off their queue, and send copies of them where they shall be worked on.
//
// Looking is peeking, and disturbs nothing. Taking has to receive: what is received and was not
// chosen is given back as if it had never been taken. A copy is never made twice, whatever happens
// in between: see [Resubmission].
package dlq
