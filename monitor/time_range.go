// SPDX-License-Identifier: Apache-2.0

package monitor

import "time"

// A timeRange is a span of enqueued-times in Unix milliseconds, without its end. Stamps are
// whole milliseconds, so a range that begins where another ends follows it without a gap.
type timeRange struct{ from, until int64 }

// millis returns the millisecond of t.
func millis(t time.Time) int64 { return t.UnixMilli() }

func (s timeRange) empty() bool { return s.from >= s.until }

func (s timeRange) holds(at int64) bool { return s.from <= at && at < s.until }

func (s timeRange) length() time.Duration { return time.Duration(s.until-s.from) * time.Millisecond }

// first and last are the first stamp in it and the last.
func (s timeRange) first() time.Time { return time.UnixMilli(s.from) }
func (s timeRange) last() time.Time  { return time.UnixMilli(s.until - 1) }
