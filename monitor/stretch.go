// SPDX-License-Identifier: Apache-2.0

package monitor

import "time"

// A stretch is a time in which messages were enqueued, in Unix milliseconds: from its beginning on, up to its end, which is not part of
// it. The broker's stamps are whole milliseconds, so two stretches of which one ends where the other begins have everything between them,
// and nothing twice.
type stretch struct{ from, until int64 }

// millis is the millisecond that an instant lies in.
func millis(t time.Time) int64 { return t.UnixMilli() }

func (s stretch) empty() bool { return s.from >= s.until }

func (s stretch) holds(at int64) bool { return s.from <= at && at < s.until }

func (s stretch) length() time.Duration { return time.Duration(s.until-s.from) * time.Millisecond }

// first and last are the first stamp in it and the last.
func (s stretch) first() time.Time { return time.UnixMilli(s.from) }
func (s stretch) last() time.Time  { return time.UnixMilli(s.until - 1) }

// stretch is the stamps that lie in the window, and those that may have been cut from an instant in it.
func (w *window) stretch() stretch { return stretch{millis(w.from), millis(w.until) + 1} }
