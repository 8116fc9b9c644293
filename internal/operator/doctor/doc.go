// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a namespace and at what is configured for it, and says what would keep
// deadlines from being noticed, with the command or the setting that cures it.
//
// What is read of an entity is judged by pure functions (monitorqueue.go, entity.go). [Examine] reads it,
// over the same ways as the program itself: what the doctor cannot reach, the program cannot. What a key
// has no right to is told as not checked, and the rest goes on.
//
// Nothing is changed but by [Apply], and that deletes nothing. [Lag] makes queues of its own and
// deletes those.
package doctor
