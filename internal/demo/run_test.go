// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/lag"
)

func TestDemoResultAsJSON(t *testing.T) {
	r := &Result{}
	r.Eager.Sent, r.Lazy.Sent = 100, 100
	r.Lazy.DeadLetteredAfterReceive = 100
	var lags []time.Duration
	for i := range 100 {
		lags = append(lags, time.Duration(100-i)*time.Millisecond)
	}
	r.Eager.DeadLettered = len(lags)
	r.setLags(lags)
	var b strings.Builder
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	want := `{"eager":{"sent":100,"deadLettered":100,"lagMs":{"p50":50,"p99":99,"max":100}},` +
		`"lazy":{"sent":100,"deadLetteredBeforeReceive":0,"deadLetteredAfterReceive":100}}` + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	if err := r.Verdict(); err != nil {
		t.Errorf("verdict = %v, want nil", err)
	}
}

func TestDemoResultAsTable(t *testing.T) {
	r := &Result{waited: 9 * time.Second}
	r.Eager.Sent, r.Lazy.Sent, r.Eager.DeadLettered, r.Lazy.DeadLetteredAfterReceive = 300, 300, 300, 300
	r.Eager.LagMs = lag.Milliseconds{P50: 11.8, P99: 43.8, Max: 61.6}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	want := `
                                 watched by Overdue     left to itself
  sent                           300                    300
  received by a consumer         0                      0
  dead-lettered by themselves    300                    0
  how late: half of them within  11.8 ms                still waiting after 9 s
            99 of 100 within     43.8 ms
            the last within      61.6 ms
  what it took to get them out   nothing                one receive, then 300

To try it with an app: overdue run
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestDemoFailsWhenTheWatchedHalfDoes(t *testing.T) {
	missing := &Result{}
	missing.Eager.Sent, missing.Eager.DeadLettered = 300, 299
	early := &Result{}
	early.Eager.Sent, early.Eager.DeadLettered = 2, 2
	early.setLags([]time.Duration{-time.Microsecond, time.Millisecond})
	for want, r := range map[string]*Result{
		"of 300 watched messages 299 were dead-lettered in time":  missing,
		"1 watched message was dead-lettered before its deadline": early,
		"of 5 watched messages 0 were dead-lettered in time":      func() *Result { r := &Result{}; r.Eager.Sent = 5; r.setLags(nil); return r }(),
	} {
		if err := r.Verdict(); err == nil || err.Error() != want {
			t.Errorf("verdict = %v, want %q", err, want)
		}
	}
}

func TestDemoSpreadsTimesToLiveAndMixesThem(t *testing.T) {
	for _, n := range []int{1, 2, 300, 5000, 7919} {
		d := &demo{n: n, timing: standard}
		seen := map[time.Duration]bool{}
		ordered := 0
		for i := range n {
			ttl := d.ttl(i)
			seen[ttl] = true
			if ttl < standard.firstTTL || ttl > standard.lastTTL {
				t.Errorf("n=%d: ttl(%d) = %v, want between %v and %v", n, i, ttl, standard.firstTTL, standard.lastTTL)
			}
			if i > 0 && ttl > d.ttl(i-1) {
				ordered++
			}
		}
		if n <= 5000 && len(seen) != n {
			t.Errorf("n=%d: %d different times to live, want one for each message", n, len(seen))
		}
		if n == 300 && ordered > n*9/10 {
			t.Errorf("n=%d: %d messages live longer than the one before; want a mix", n, ordered)
		}
	}
}

func TestLineScreenWritesALinePerSecond(t *testing.T) {
	var b strings.Builder
	s := NewScreen(&b, func(string) string { return "" })
	for i := range 25 { // 2.4 seconds, ten frames a second
		s.show(frame{elapsed: time.Duration(i) * 100 * time.Millisecond, total: 300, last: i == 24,
			eager: queueCounts{300 - i, i}, lazy: queueCounts{300, 0}})
	}
	want := "  0.0s  watched:  300 waiting    0 dead-lettered   unwatched:  300 waiting    0 dead-lettered\n" +
		"  1.0s  watched:  290 waiting   10 dead-lettered   unwatched:  300 waiting    0 dead-lettered\n" +
		"  2.0s  watched:  280 waiting   20 dead-lettered   unwatched:  300 waiting    0 dead-lettered\n" +
		"  2.4s  watched:  276 waiting   24 dead-lettered   unwatched:  300 waiting    0 dead-lettered\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestLiveScreenRedrawsInPlaceAndFits(t *testing.T) {
	var b strings.Builder
	s := &liveScreen{w: &b}
	f := frame{elapsed: time.Second, total: 5000, eager: queueCounts{0, 5000}, lazy: queueCounts{2500, 1}}
	s.show(f)
	first := b.String()
	for _, line := range strings.Split(strings.ReplaceAll(first, "\x1b[2K", ""), "\n") {
		if n := len([]rune(line)); n > screenWidth {
			t.Errorf("line of %d columns, want at most %d: %q", n, screenWidth, line)
		}
	}
	if !strings.Contains(first, "left to itself      waiting       "+strings.Repeat("█", 15)+strings.Repeat("·", 15)+"  2500") {
		t.Errorf("no bar that is half full in:\n%s", first)
	}
	b.Reset()
	s.show(f)
	if want := "\x1b[5A" + first; b.String() != want {
		t.Errorf("second picture = %q, want five rows up and the same again", b.String())
	}
	b.Reset()
	s.say("text")
	s.show(f)
	if got := b.String(); got != "text\n"+first {
		t.Errorf("after text: %q, want the picture anew below it", got)
	}
}
