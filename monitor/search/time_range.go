// SPDX-License-Identifier: Apache-2.0

package search

import "time"

// A TimeRange is a span of enqueued-times in Unix milliseconds, without its end. Stamps are
// whole milliseconds, so a range that begins where another ends follows it without a gap.
type TimeRange struct{ From, Until int64 }

// Millis returns the millisecond of t.
func Millis(t time.Time) int64 { return t.UnixMilli() }

func (s TimeRange) Empty() bool { return s.From >= s.Until }

func (s TimeRange) Holds(at int64) bool { return s.From <= at && at < s.Until }

// Contains reports whether all of o is in s.
func (s TimeRange) Contains(o TimeRange) bool { return s.From <= o.From && o.Until <= s.Until }

func (s TimeRange) Length() time.Duration { return time.Duration(s.Until-s.From) * time.Millisecond }

// First and last are the first stamp in it and the last.
func (s TimeRange) First() time.Time { return time.UnixMilli(s.From) }
func (s TimeRange) Last() time.Time  { return time.UnixMilli(s.Until - 1) }
