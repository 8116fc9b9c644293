// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/testing/racetest"
	"overdue/scheduler"
)

// sendWithoutIDs sends a batch of n messages that have no message-ids, as change makes them. An
// SDK may fill a batch to the last byte, so that a proxy has no room to add them.
func (s *scene) sendWithoutIDs(entity string, n int, change func(i int, m *azservicebus.Message)) {
	s.Helper()
	ms := make([]*azservicebus.Message, n)
	for i := range ms {
		ms[i] = &azservicebus.Message{Body: []byte("b")}
		change(i, ms[i])
	}
	s.Must(s.sendAll(entity, ms...))
}

// In every kind of entity, batches that have no room for the ids that their messages lack pass.
// Each message that nobody receives in time is dead-lettered and notified once, however its
// deadline is stated.
func TestBatchesWithoutRoomForIDs(t *testing.T) {
	const n, within = 25, 3 * time.Second
	end := broker.QueueConfig{Name: "end", DeadLetteringOnMessageExpiration: true}
	turn := 0
	for _, kind := range []struct {
		name  string
		make  func(*scene, *broker.Config)
		to    string   // where the batch is sent
		ends  []string // where its messages are missed
		later time.Duration
		id    *string // what its messages have for one
		// repeats: one may be notified of twice, by the number that it had and by the one that
		// it has.
		repeats bool
	}{
		{name: "queue", to: workQueue, ends: []string{workQueue}},
		{name: "queue, unknown to the monitor", to: workQueue, ends: []string{workQueue}, make: func(s *scene, _ *broker.Config) { s.undescribed = true }},
		{name: "queue with slots", to: workQueue, ends: []string{workQueue}, make: func(s *scene, _ *broker.Config) { s.slots = true }},
		{name: "queue, empty ids", to: workQueue, ends: []string{workQueue}, id: new("")},
		{name: "queue with slots, empty ids", to: workQueue, ends: []string{workQueue}, id: new(""), make: func(s *scene, _ *broker.Config) { s.slots = true }},
		{name: "sessions", to: workQueue, ends: []string{workQueue}, make: withSessions},
		{name: "partitions", to: workQueue, ends: []string{workQueue}, make: func(_ *scene, c *broker.Config) { c.Queues[0].EnablePartitioning = true }},
		{name: "partitions, unknown to the monitor", to: workQueue, ends: []string{workQueue}, make: func(s *scene, c *broker.Config) {
			s.undescribed, c.Queues[0].EnablePartitioning = true, true
		}},
		{name: "topic", to: topic, ends: []string{of("one"), of("two")}, make: withTopic(subscription("one"), subscription("two"))},
		{name: "forwards", to: workQueue, ends: []string{"end"}, make: func(_ *scene, c *broker.Config) {
			c.Queues[0].ForwardTo = "end"
			c.Queues = append(c.Queues, end)
		}},
		{name: "forwards in vain", to: workQueue, ends: []string{workQueue}, make: func(_ *scene, c *broker.Config) {
			c.Queues[0].ForwardTo = "end"
			c.Queues = append(c.Queues, broker.QueueConfig{Name: "end", Status: broker.Disabled})
		}},
		{name: "forwards its dead letters", to: workQueue, ends: []string{"end"}, make: func(_ *scene, c *broker.Config) {
			c.Queues[0].ForwardDeadLetteredMessagesTo = "end"
			c.Queues = append(c.Queues, end)
		}},
		{name: "forwards its dead letters, empty ids", to: workQueue, ends: []string{"end"}, id: new(""), repeats: true, make: func(_ *scene, c *broker.Config) {
			c.Queues[0].ForwardDeadLetteredMessagesTo = "end"
			c.Queues = append(c.Queues, end)
		}},
		{name: "scheduled", to: workQueue, ends: []string{workQueue}, later: 10 * time.Second},
	} {
		for _, stated := range []string{"ttl", "within", "deadline", "entity", "default"} {
			if kind.name != "queue" && stated != "ttl" && (stated != "within" || kind.name != "sessions" && kind.name != "forwards its dead letters") {
				continue
			}
			turn++
			t.Run(kind.name+", by "+stated, func(t *testing.T) {
				inModeOfTurn(t, turn, func(s *scene, c *broker.Config) {
					if kind.make != nil {
						kind.make(s, c)
					}
					switch stated {
					case "entity":
						s.settings.Deadline = within
					case "default":
						s.settings.DefaultMessageTimeToLive = within
						for i := range c.Queues {
							if c.Queues[i].Name != monitorQueue {
								c.Queues[i].DefaultMessageTimeToLive = within
							}
						}
						for i := range c.Topics {
							c.Topics[i].DefaultMessageTimeToLive = within
						}
					}
				}, func(s *scene) {
					s.MeasureClock()
					s.startMonitor()
					start, sessions := time.Now(), 3
					if strings.HasPrefix(kind.name, "partitions") {
						sessions = 1 // in one batch
					}
					for range 2 { // both are in the windows of both
						s.sendWithoutIDs(kind.to, n, func(i int, m *azservicebus.Message) {
							switch stated {
							case "ttl":
								m.TimeToLive = new(within)
							case "within":
								m.ApplicationProperties = map[string]any{"overdue-within": "3s"}
							case "deadline":
								m.ApplicationProperties = map[string]any{"overdue-deadline": start.Add(within)}
							}
							m.MessageID, m.SessionID = kind.id, new(fmt.Sprint("s-", i%sessions))
							if kind.later > 0 {
								m.ScheduledEnqueueTime = new(start.Add(kind.later))
							}
						})
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(kind.later + within + 2*time.Second)
					for _, path := range kind.ends {
						dead := s.Dead(path)
						if strings.HasPrefix(kind.name, "forwards its dead letters") {
							dead = s.Waiting(path)
						}
						if len(dead) != 2*n {
							s.Errorf("%d dead letters in %s, want %d", len(dead), path, 2*n)
						}
					}
					notified := map[string]int{}
					for _, e := range s.Hook.Events() {
						notified[e.ID]++
						if early := e.Data.DeadLetteredTime.Sub(start.Add(kind.later + within)); early < -time.Millisecond || early > time.Second {
							s.Errorf("dead-lettered %v after its deadline", early)
						}
					}
					if want := 2 * n * len(kind.ends); len(notified) < want || len(notified) > want && !kind.repeats {
						s.Errorf("notified of %d messages, want %d", len(notified), 2*n*len(kind.ends))
					}
					for id, n := range notified {
						if n != 1 {
							s.Errorf("%s was notified %d times", id, n)
						}
					}
					time.Sleep(6 * time.Minute) // until nothing can still arrive of what was scheduled
					s.Settled(time.Second)
				})
			})
		}
	}
}

// Messages that consumers have received in time are not notified, and held ones are left alone
// until the consumers give them back. Messages that have names or no deadlines at all do not belong
// to a batch without names.
func TestMessagesWithoutIDsAmongOthers(t *testing.T) {
	for _, slots := range []bool{false, true} {
		t.Run(fmt.Sprint("slots ", slots), func(t *testing.T) {
			inModes(t, func(s *scene, c *broker.Config) { s.slots = slots }, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				lives := []time.Duration{3 * time.Second, 10 * time.Second, time.Hour}
				s.send(workQueue, "lives on", "")
				s.send(workQueue, "named", ttl(lives[0]))
				s.sendWithoutIDs(workQueue, 60, func(i int, m *azservicebus.Message) { m.TimeToLive = &lives[i%3] })
				s.send(workQueue, "named, too", ttl(lives[0]))
				s.send(workQueue, "lives on, too", "")
				r, err := s.Client.NewReceiverForQueue(workQueue, nil)
				if err != nil {
					s.Fatal(err)
				}
				got, err := r.ReceiveMessages(s.Context(), 32, nil) // both before the batch, and 30 of it
				if err != nil || len(got) < 3 {
					s.Fatalf("received %d messages, %v", len(got), err)
				}
				for len(got) < 32 {
					more, err := r.ReceiveMessages(s.Context(), 32-len(got), nil)
					if err != nil {
						s.Fatal(err)
					}
					got = append(got, more...)
				}
				var held []*azservicebus.ReceivedMessage
				for i, m := range got {
					if i < 20 {
						if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
							s.Fatal(err)
						}
					} else {
						held = append(held, m)
					}
				}
				time.Sleep(5 * time.Second)
				heldShort := 0 // of what is held: those that are overdue
				for _, m := range held {
					if *m.TimeToLive == lives[0] {
						heldShort++
					}
				}
				left := len(s.Dead(workQueue)) // of 20 with the shortest time to live, and what is named
				if notified := len(s.Hook.Events()); notified != left || left != 10+1 {
					s.Errorf("%d dead letters, notified of %d, want 11: what nobody holds", left, notified)
				}
				for _, m := range held {
					if err := r.AbandonMessage(s.Context(), m, nil); err != nil {
						s.Fatal(err)
					}
				}
				if err := r.Close(s.Context()); err != nil {
					s.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				if got, want := len(s.Hook.Events()), 11+heldShort; got != want {
					s.Errorf("notified of %d after what was held came back, want %d", got, want)
				}
				time.Sleep(10 * time.Second)
				byLife := map[time.Duration]int{}
				for _, m := range s.Dead(workQueue) {
					byLife[m.ExpiresAt.Sub(m.EnqueuedTime)]++
				}
				if byLife[lives[2]] != 0 || len(s.Hook.Events()) != len(s.Dead(workQueue)) {
					s.Errorf("dead letters by time to live: %v; notified of %d", byLife, len(s.Hook.Events()))
				}
				if waiting := s.Waiting(workQueue); len(waiting) != 60-byLife[lives[0]]-byLife[lives[1]]-18+2 {
					s.Errorf("%d messages wait with dead letters %v", len(waiting), byLife)
				}
			})
		})
	}
}

// Monitors that come and go, several at a time: no message without a name is lost to the change,
// and each event has one id.
func TestMessagesWithoutIDsOutliveAMonitor(t *testing.T) {
	inModes(t, plain, func(s *scene) {
		s.MeasureClock()
		first, second := s.startMonitor(), s.startMonitor()
		const n = 30
		for range 3 {
			s.sendWithoutIDs(workQueue, n/3, func(i int, m *azservicebus.Message) {
				m.TimeToLive = new(5*time.Second + time.Duration(i)*100*time.Millisecond)
			})
		}
		r, err := s.Client.NewReceiverForQueue(workQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		var held []*azservicebus.ReceivedMessage
		for len(held) < n {
			ms, err := r.ReceiveMessages(s.Context(), n-len(held), nil)
			if err != nil {
				s.Fatal(err)
			}
			held = append(held, ms...)
		}
		time.Sleep(4 * time.Second)
		first() // before the deadlines
		time.Sleep(1500 * time.Millisecond)
		s.startMonitor()
		second() // between them
		time.Sleep(2 * time.Second)
		for i, m := range held {
			if i%3 == 0 {
				err = r.CompleteMessage(s.Context(), m, nil)
			} else {
				err = r.AbandonMessage(s.Context(), m, nil)
			}
			if err != nil {
				s.Fatal(err)
			}
		}
		if err := r.Close(s.Context()); err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // locks of companions that were not handed back have lapsed
		if dead := len(s.Dead(workQueue)); dead != n*2/3 {
			s.Errorf("%d dead letters, want %d", dead, n*2/3)
		}
		notified := map[string]bool{}
		for _, e := range s.Hook.Events() {
			notified[e.ID] = true
		}
		if len(notified) != n*2/3 {
			s.Errorf("notified of %d messages, want %d", len(notified), n*2/3)
		}
		s.Settled(time.Second)
	})
}

// Messages without names have the second deadline, too, be the broker's names for them or none.
func TestMessagesWithoutIDsHaveToBeCompleted(t *testing.T) {
	for _, id := range []*string{nil, new("")} {
		for _, alone := range []bool{true, false} {
			t.Run(fmt.Sprintf("empty id %v, alone %v", id != nil, alone), func(t *testing.T) {
				inModes(t, plain, func(s *scene) {
					s.MeasureClock()
					s.startMonitor()
					const n = 20
					s.sendWithoutIDs(workQueue, n, func(_ int, m *azservicebus.Message) {
						m.MessageID = id
						m.ApplicationProperties = map[string]any{"overdue-complete-within": "10s"}
						if !alone {
							m.TimeToLive = new(3 * time.Second)
						}
					})
					r, err := s.Client.NewReceiverForQueue(workQueue, nil)
					s.Must(err)
					var held []*azservicebus.ReceivedMessage
					for len(held) < n/2 {
						ms, err := r.ReceiveMessages(s.Context(), n/2-len(held), nil)
						s.Must(err)
						held = append(held, ms...)
					}
					s.Must(r.CompleteMessage(s.Context(), held[0], nil))
					time.Sleep(12 * time.Second)
					types := map[string]int{}
					for _, e := range s.Hook.Events() {
						types[e.Type]++
					}
					missed, incomplete := n/2, n/2-1 // what nobody had; what somebody has had for too long
					if alone {
						missed, incomplete = 0, n-1
					}
					if types[alert.TypeMissed] != missed || types[alert.TypeIncomplete] != incomplete {
						s.Errorf("notified of %v, want %d missed and %d incomplete", types, missed, incomplete)
					}
					for _, m := range held[1:] {
						s.Must(r.CompleteMessage(s.Context(), m, nil))
					}
					s.Must(r.Close(s.Context()))
					if waiting := len(s.Waiting(workQueue)); alone != (waiting > 0) {
						s.Errorf("%d messages wait", waiting)
					}
				})
			})
		}
	}
}

// Anybody who may write companions may say any window. However many messages are found in it, a
// look takes as many as a monitor has room for, and the rest a little later.
func TestReferenceWithoutAnIDThatStandsForTooMuch(t *testing.T) {
	racetest.Skip(t, "it lasts for days of fake time")
	const n = 5500
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		sender, err := s.Client.NewSender(workQueue, nil)
		s.Must(err)
		life := 2 * time.Second
		for sent := 0; sent < n; sent += 500 {
			batch, err := sender.NewMessageBatch(s.Context(), nil)
			s.Must(err)
			for range 500 {
				s.Must(batch.AddMessage(&azservicebus.Message{TimeToLive: &life}, nil))
			}
			s.Must(sender.SendMessageBatch(s.Context(), batch, nil))
		}
		now := time.Now()
		s.Must(s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, References: []scheduler.Reference{{
			Sent: now, From: now.Add(-365 * 24 * time.Hour), Until: now, Deadline: now.Add(life), Within: life, Stated: "ttl",
		}}}))
		time.Sleep(15 * time.Second)
		if dead, notified := len(s.Dead(workQueue)), len(s.Hook.Events()); dead != n || notified != n {
			s.Errorf("%d dead letters, notified of %d, want all %d", dead, notified, n)
		}
		s.Settled(time.Second)
	})
}
