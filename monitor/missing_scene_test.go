// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
)

// companionsOfEachKind plays a scene for each kind of companion: by name, of slots, of a
// scheduled message. send sends the message with the id, which lives for five seconds, and due
// is when its deadline is.
func companionsOfEachKind(t *testing.T, act func(s *scene, send func(id string) (due time.Time))) {
	for _, kind := range []string{"named", "slot", "scheduled"} {
		t.Run(kind, func(t *testing.T) {
			play(t, func(s *scene) {
				s.slots = kind == "slot"
				s.MeasureClock()
				s.startMonitor()
				act(s, func(id string) time.Time {
					at, p := time.Now(), ttl(5*time.Second)
					if kind == "scheduled" {
						at = at.Add(5 * time.Second).Truncate(time.Second)
						p += fmt.Sprintf(`,"ScheduledEnqueueTimeUtc":%q`, at.UTC().Format(time.RFC3339))
					}
					s.send(workQueue, id, p)
					return at.Add(5 * time.Second)
				})
			})
		})
	}
}

// A namespace says not-found of a queue that is there: while an alias points elsewhere, or what
// was deleted is being restored.
func TestCompanionsWaitForAQueueThatIsMissing(t *testing.T) {
	companionsOfEachKind(t, func(s *scene, send func(string) time.Time) {
		for i, missing := range []time.Duration{10 * time.Second, 50 * time.Minute} {
			due := send(fmt.Sprint("m-", i))
			remove := s.Namespace.Broker.Default().Inject(broker.Fault{
				Operation: broker.OnAttach, Entity: workQueue, Error: amqp.Errorf(amqp.ErrCondNotFound, "The messaging entity 'orders' could not be found."),
			})
			time.Sleep(time.Until(due) + missing)
			if n := len(s.Dead(monitorQueue)); n != 0 {
				s.Errorf("%d companions were dead-lettered while their queue was missing, want none", n)
			}
			if s.CompanionsLeft() == 0 {
				s.Error("no companion waits for the queue")
			}
			remove()
			time.Sleep(2*time.Minute + time.Second)
			if n := len(s.Dead(workQueue)); n != i+1 {
				s.Errorf("%d dead letters two minutes after the queue was there again, want %d", n, i+1)
			}
			notifiedOnceEach(s, i+1)
		}
	})
}

// A queue that is deleted takes its messages along. Their companions are no dead letters of the
// monitor queue, which somebody would have to look through, nor do they wait for ever.
func TestCompanionsOfADeletedQueueAreGivenUp(t *testing.T) {
	companionsOfEachKind(t, func(s *scene, send func(string) time.Time) {
		const n = 20
		var due time.Time
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("m-%02d", i))
			due = send(ids[i])
		}
		s.Must(s.Namespace.Broker.Default().DeleteQueue(workQueue))
		before := s.Operations("")
		time.Sleep(time.Until(due) + 58*time.Minute)
		if s.CompanionsLeft() == 0 {
			s.Error("no companion waits for the queue, an hour after the deadline at the latest")
		}
		time.Sleep(5 * time.Minute)
		s.Settled(time.Second)
		if dead := len(s.Dead(monitorQueue)); dead != 0 || len(s.Hook.Events()) != 0 {
			s.Errorf("%d companions were dead-lettered and %d events notified, want neither", dead, len(s.Hook.Events()))
		}
		got := s.Verdicts(workQueue, "unknown")
		if s.slots { // nobody knows of how many messages
			if u := <-s.unknown; got != 1 || u.From.IsZero() || !u.From.Before(u.Deadline) || u.MessageID != "" {
				s.Errorf("%v verdicts are unknown, the first %+v, want one about the window of the slot", got, u)
			}
			return
		}
		if s.wantUnknown("does not exist", ids...); got != n {
			s.Errorf("%v deadlines are counted as unknown, want %d", got, n)
		}
		if ops := s.Operations("") - before; ops > 120*n {
			s.Errorf("%v operations for %d companions in an hour, want not more than 120 for each", ops, n)
		} else {
			s.Logf("%v operations", ops)
		}
	})
}

func TestCompanionsOfASubscriptionThatIsDeletedWithItsTopicWait(t *testing.T) {
	play(t, func(s *scene) {
		s.monitored["events"] = true
		s.MeasureClock()
		s.startMonitor()
		s.send("events", "m", ttl(5*time.Second))
		s.Must(s.Namespace.Broker.Default().DeleteTopic("events"))
		time.Sleep(time.Minute)
		if s.CompanionsLeft() == 0 || len(s.Dead(monitorQueue)) != 0 {
			s.Errorf("%d companions wait and %d were dead-lettered, want one that waits", s.CompanionsLeft(), len(s.Dead(monitorQueue)))
		}
		time.Sleep(65 * time.Minute)
		s.Settled(time.Second)
	}, func(_ *scene, c *broker.Config) {
		c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}, Subscriptions: []broker.SubscriptionSetup{
			{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit", DeadLetteringOnMessageExpiration: true}},
		}}}
	})
}
