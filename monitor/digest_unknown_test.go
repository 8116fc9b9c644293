// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/alert"
	"overdue/monitor/notify"
	"overdue/scheduler"
)

// rolledOut plays a scene in which a monitor has gathered a group for a sink. A monitor whose
// configuration does not have that sink takes its place before the page is due. Calling know makes
// monitors that are started later know the sink again.
func rolledOut(t *testing.T, act func(s *scene, sink *pages, digests int, know func())) {
	t.Helper()
	play(t, func(s *scene) {
		sink := &pages{}
		know := func() {
			s.groups = func(sc *scheduler.Scheduler) *alert.Groups {
				g, err := alert.NewGroups(alert.GroupsConfig{
					Sink: sink, Outbox: notify.NewOutbox(sc), Source: "sb://overdue.test",
					Wait: 30 * time.Second, Interval: time.Minute, ResolveAfter: 2 * time.Minute,
				})
				s.Must(err)
				return g
			}
		}
		know()
		s.MeasureClock()
		stop := s.startMonitor()
		for i := range 20 {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Second))
		}
		time.Sleep(10 * time.Second)
		stop()
		s.groups = nil
		s.startMonitor()
		time.Sleep(time.Minute)
		c := s.Queue(monitorQueue).Counts()
		if c.DeadLetter != 0 || c.Active+c.Scheduled == 0 {
			t.Fatalf("on the monitor queue once the page was due: %+v, want it to wait", c)
		}
		act(s, sink, c.Active+c.Scheduled, know)
	})
}

// During the rollout of a configuration, a digest may reach monitors without its sink. They leave
// it to one that has the sink.
func TestDigestsWaitForAMonitorThatKnowsTheirSink(t *testing.T) {
	rolledOut(t, func(s *scene, sink *pages, _ int, know func()) {
		know()
		s.startMonitor() // in addition to the one that does not
		time.Sleep(20 * time.Minute)
		want := []string{"orders firing 20 of 20", "orders resolved 0 of 20"}
		if got := sink.notified(); !slices.Equal(got, want) {
			t.Errorf("pages = %q, want %q", got, want)
		}
		if c := s.Queue(monitorQueue).Counts(); c.Active+c.Scheduled+c.DeadLetter != 0 {
			t.Errorf("left on the monitor queue: %+v", c)
		}
	})
}

// If no monitor has the sink of a digest for an hour, the digest becomes a dead letter, and costs
// little until then.
func TestDigestOfASinkThatIsGone(t *testing.T) {
	rolledOut(t, func(s *scene, sink *pages, digests int, _ func()) {
		time.Sleep(57 * time.Minute)
		if c := s.Queue(monitorQueue).Counts(); c.DeadLetter != 0 {
			t.Errorf("on the monitor queue within the hour: %+v, want the digest to wait", c)
		}
		if n := s.Operations("complete"); n > float64(100*digests) {
			t.Errorf("%d digests were put back %v times within the hour, want each once a minute or so", digests, n)
		}
		time.Sleep(5 * time.Minute)
		for _, m := range s.Dead(monitorQueue) {
			if m.DeadLetterReason != "AlertUndeliverable" || !strings.Contains(m.DeadLetterErrorDescription, `"pages"`) {
				t.Errorf("dead-lettered for %s: %q, want the sink that nobody has to be named", m.DeadLetterReason, m.DeadLetterErrorDescription)
			}
		}
		if n := len(s.Dead(monitorQueue)); n != digests {
			t.Errorf("%d dead letters after an hour, want all of %d digests", n, digests)
		}
		if c := s.Queue(monitorQueue).Counts(); c.Active+c.Scheduled != 0 {
			t.Errorf("left on the monitor queue: %+v", c)
		}
		if got := sink.notified(); len(got) != 0 {
			t.Errorf("pages = %q, want none", got)
		}
	})
}
