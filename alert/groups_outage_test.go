// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	"overdue/internal/pace"
)

// goOn has one event happen each minute.
func (s *groupScene) goOn(entity string, minutes int) {
	for range minutes {
		s.miss(entity, 1)
		s.pass(time.Minute)
	}
}

// resolutions counts notifications that the group is resolved.
func (s *groupScene) resolutions() (n int) {
	for _, page := range s.p.said() {
		if strings.Contains(page, "resolved") {
			n++
		}
	}
	return n
}

// While deadlines are missed, no group is resolved, whatever the sink does.
func TestAGroupIsNotResolvedWhileEventsCome(t *testing.T) {
	for name, change := range map[string]func(*GroupsConfig){
		"as usual":                    nil,
		"resolved before an interval": func(c *GroupsConfig) { c.ResolveAfter = 90 * time.Second },
		"resolved with reminders":     func(c *GroupsConfig) { c.Wait, c.ResolveAfter, c.Resend = 0, 90*time.Second, time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			playGroups(t, change, func(s *groupScene) {
				s.goOn("orders", 20)
				s.p.fail(errors.New("refused"))
				s.goOn("orders", 16)
				s.p.fail(nil)
				s.goOn("orders", 20)
				if n := s.resolutions(); n != 0 {
					t.Errorf("resolved %d times while events come: %q", n, s.p.said())
				}
				s.pass(30 * time.Minute)
				all := s.p.said()
				if last := all[len(all)-1]; s.resolutions() != 1 || !strings.HasSuffix(last, "orders resolved 0 of 56") {
					t.Errorf("half an hour after the last event: %q, want one resolution, of 56 events, at the end", all)
				}
				if s.o.left != 0 {
					t.Errorf("%d digests are left on the outbox", s.o.left)
				}
			})
		})
	}
}

// The first notification after an outage of the sink has all events of the outage.
func TestTheFirstNotificationAfterAnOutageHasAllEvents(t *testing.T) {
	for name, refusal := range map[string]error{"failure": errors.New("refused"), "Retry-After": backoff.RetryAfter(60)} {
		t.Run(name, func(t *testing.T) {
			playGroups(t, nil, func(s *groupScene) {
				s.p.fail(refusal)
				s.goOn("orders", 16)
				s.p.fail(nil)
				s.pass(5 * time.Minute)
				if all := s.p.said(); len(all) != 1 || !strings.HasSuffix(all[0], "orders firing 16 of 16") {
					t.Errorf("after the outage: %q, want one notification of 16 events", all)
				}
			})
		})
	}
}

// refusals counts the notifications that are shown to have failed.
type refusals struct {
	noTracker
	n *int
}

func (r refusals) Notified(_, _ string, _ time.Time, refused error) {
	if refused != nil {
		*r.n++
	}
}

// A sink that asks for a pause refuses no event, however often it asks. The metrics count it.
func TestRetryAfterIsNoAttempt(t *testing.T) {
	shown, failed, paused := 0, 0, 0
	playGroups(t, func(c *GroupsConfig) { c.Tracker = refusals{n: &shown} }, func(s *groupScene) {
		s.g.OnNotify(func(err error) {
			switch {
			case pace.IsRetryAfter(err):
				paused++
			case err != nil:
				failed++
			}
		})
		s.p.fail(backoff.RetryAfter(600))
		s.miss("orders", 3)
		s.pass(72 * time.Hour)
		if len(s.o.refused) != 0 || s.p.asked > 72*6+1 {
			t.Errorf("after three days %d digests are undeliverable and the sink was asked %d times, want none and once in ten minutes", len(s.o.refused), s.p.asked)
		}
		if shown != 0 || failed != 0 || paused != s.p.asked {
			t.Errorf("%d failures are shown, %d reported beside %d pauses; want none, and a pause each time of %d", shown, failed, paused, s.p.asked)
		}
		s.p.fail(nil)
		s.pass(11 * time.Minute)
		if all := s.p.said(); len(all) == 0 || !strings.HasSuffix(all[0], "firing 3 of 3") {
			t.Errorf("then: %q, want the three events", all)
		}
	})
}

// A sink that fails is not asked by each of many groups.
func TestManyGroupsDoNotHammerASinkThatFails(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		s.p.fail(errors.New("refused"))
		for i := range 100 {
			s.miss(fmt.Sprintf("queue-%d", i), 1)
		}
		s.pass(16 * time.Minute)
		if s.p.asked > 50 {
			t.Errorf("the sink was asked %d times in 16 minutes, want about twice a minute", s.p.asked)
		}
		s.p.fail(nil)
		s.pass(6 * time.Minute)
		if all := s.p.said(); len(all)-s.resolutions() != 100 {
			t.Errorf("six minutes after the outage the sink has %d notifications of events, want 100", len(all)-s.resolutions())
		}
	})
}

// A monitor that sees nothing, since the namespace does not answer, resolves nothing. Then it looks
// for ResolveAfter first.
func TestABlindMonitorResolvesNothing(t *testing.T) {
	for _, resend := range []time.Duration{0, time.Minute} {
		playGroups(t, func(c *GroupsConfig) { c.Resend = resend }, func(s *groupScene) {
			s.pass(time.Hour)
			s.miss("orders", 1)
			s.pass(5 * time.Minute)
			s.o.serve(nil) // what is due waits
			s.pass(20 * time.Minute)
			s.o.serve(s.g)
			s.pass(9 * time.Minute)
			if n := s.resolutions(); n != 0 {
				t.Errorf("resend %v: resolved within nine minutes of an outage: %q", resend, s.p.said())
			}
			s.pass(10 * time.Minute)
			if n := s.resolutions(); n != 1 {
				t.Errorf("resend %v: %d resolutions twenty minutes after an outage, want one: %q", resend, n, s.p.said())
			}
		})
	}
}
