// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/monitor/intake"
	"overdue/scheduler"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
)

type clock struct{}

func (clock) Observe(time.Time) {}
func (clock) Latest() time.Time { return time.Now() }

// page is a sink for groups that counts its notifications.
type page struct{ got int }

func (*page) Name() string { return "page" }

func (p *page) Notify(context.Context, alert.Notification) error {
	p.got++
	return nil
}

// Digests come from a monitor queue to a monitor that has the sink page, and no other.
func TestADigestGoesToTheGroupsOfItsSink(t *testing.T) {
	event := someEvent()
	one := func(sink string) alert.Digest {
		return alert.Digest{Sink: sink, Count: 1, Oldest: &event, Samples: []alert.Event{event}}
	}
	for name, test := range map[string]struct {
		digest     alert.Digest
		isFormer   bool // no monitor has had its sink for long
		notified   int
		scheduled  int // left to another monitor
		deadLetter int
	}{
		"of its sink":      {one("page"), false, 1, 0, 0},
		"of another":       {one("chat"), false, 0, 1, 0},
		"of a former sink": {one("chat"), true, 0, 0, 1},
		"of nobody":        {one(""), false, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				if test.isFormer {
					test.digest.UnknownSince = time.Now().Add(-unknownSinkMax)
				}
				sink := &page{}
				groups, err := alert.NewGroups(alert.GroupsConfig{
					Sink:         sink,
					Outbox:       NewOutbox(s),
					Source:       "sb://overdue.test",
					Wait:         time.Second,
					Interval:     time.Hour,
					ResolveAfter: time.Hour,
				})
				if err != nil {
					t.Fatal(err)
				}
				n, reported := newNotifier(nil, groups)
				n.cfg.Scheduler, n.cfg.Now, n.cfg.Yield = s, time.Now, func() {}
				in := intake.New(intake.Config{
					Links:  ns.Links(t),
					Queues: []string{bubble.MonitorQueue},
					Clock:  clock{},
					Take:   func(work context.Context, l *intake.Lease) { n.Digest(work, l, func() {}) },
					Log:    zap.NewNop(),
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				work, stopWork := context.WithCancel(t.Context())
				go func() {
					in.Run(ctx, work)
					close(ended)
				}()
				body, err := json.Marshal(test.digest)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Keep(t.Context(), scheduler.Note{Due: time.Now(), ContentType: DigestType, Subject: "digest", Body: body}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				q, _ := ns.Broker.Queue(bubble.MonitorQueue)
				c := q.Counts()
				got := []int{sink.got, c.Scheduled, c.DeadLetter, c.Active}
				if diff := cmp.Diff([]int{test.notified, test.scheduled, test.deadLetter, 0}, got); diff != "" {
					t.Errorf("notified, scheduled, dead letters, active -want +got:\n%s", diff)
				}
				if reported["page"] != test.notified {
					t.Errorf("reported %v, want %d notifications of page", reported, test.notified)
				}
				cancel()
				<-ended
				stopWork()
				n.Close()
			})
		})
	}
}
