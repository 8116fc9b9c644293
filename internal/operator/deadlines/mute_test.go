// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/operator/dlq"
	"overdue/internal/testing/redistest"
)

func (s *scene) mutes() string {
	s.Helper()
	all, err := ListMutes(s.Context(), s.source)
	if err != nil {
		s.Fatal(err)
	}
	return s.text(func(w io.Writer) error { return all.WriteText(w, time.Now(), 0) })
}

func TestMutesAreListedUntilTheyAreOver(t *testing.T) {
	play := func(t *testing.T, configure func(*scene)) {
		synctest.Test(t, func(t *testing.T) {
			s := setup(t)
			configure(s)
			const nothing = "Nothing is muted.\n"
			if got := s.mutes(); got != nothing {
				t.Errorf("at first: %q, want %q", got, nothing)
			}
			o := MuteOptions{
				Place:  orders,
				For:    2 * time.Hour,
				By:     "ann",
				Reason: "moving the consumers",
			}
			set, err := SetMute(t.Context(), s.source, o)
			if err != nil {
				t.Fatal(err)
			}
			want := "ENTITY  UNTIL                 IN  BY   REASON\n" +
				"orders  " + set.Until.Format("2006-01-02 15:04:05Z") + "  2h  ann  moving the consumers\n"
			if got := s.mutes(); got != want {
				t.Errorf("muted:\n%s\nwant\n%s", got, want)
			}
			time.Sleep(2*time.Hour + time.Second)
			if got := s.mutes(); got != nothing {
				t.Errorf("in the end: %q, want %q", got, nothing)
			}
			o.For = 0
			if _, err := SetMute(t.Context(), s.source, o); err == nil || err.Error() != "orders is not muted" {
				t.Errorf("ended again: %v", err)
			}
			o.Place, o.For = dlq.Place{Entity: "ordres"}, time.Hour
			if set, err := SetMute(t.Context(), s.source, o); err == nil {
				t.Errorf("a queue that there is not is muted: %+v", set)
			}
		})
	}
	t.Run("monitor queue", func(t *testing.T) { play(t, func(*scene) {}) })
	t.Run("redis", func(t *testing.T) {
		addr := redistest.Start(t).Addr
		play(t, func(s *scene) {
			s.useRedis(addr)
			s.source.CompanionsInRedis = true
		})
	})
}

func TestAMuteNeedsAMonitorQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.source.MonitorQueue = "none"
		_, err := SetMute(t.Context(), s.source, MuteOptions{Place: orders, For: time.Hour})
		if want := "there is no monitor queue \"none\"; create it with `overdue doctor --fix`"; err == nil || err.Error() != want {
			t.Errorf("SetMute = %v, want %s", err, want)
		}
	})
}
