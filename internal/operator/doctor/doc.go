// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a namespace and what is configured for it. It reports what would keep
// Overdue from meeting deadlines, each finding with the command or the setting that fixes it.
//
// [Examine] reads over the same connections as the program itself: if the doctor cannot reach an
// entity, neither can the program. Pure functions judge what it read (monitorqueue.go, entity.go,
// redis.go). If a key lacks a right, the checks that need it are reported as unknown, and the
// others go on.
//
// Only [Apply] changes anything, and it deletes nothing. [MeasureLag] creates queues of its own and
// deletes those. [Run] is the command `overdue doctor`: it examines, prints, asks and applies.
package doctor
