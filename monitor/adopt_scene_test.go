// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

func states(name string, d time.Duration) azservicebus.Message {
	return azservicebus.Message{ApplicationProperties: map[string]any{name: d.String()}}
}

func TestMessagesThatBypassTheEndpoints(t *testing.T) {
	inModesAndRedis(t, adopts(workQueue), func(s *scene) {
		s.MeasureClock()
		stop := s.startMonitor()
		time.Sleep(10 * time.Second)
		s.SendDirectly(workQueue, "done", lives(8*time.Second))
		s.SendDirectly(workQueue, "ttl", lives(8*time.Second))
		s.SendDirectly(workQueue, "within", states("overdue-within", 9*time.Second))
		s.SendDirectly(workQueue, "complete", states("overdue-complete-within", 8*time.Second))
		s.SendDirectly(workQueue, "for ever", azservicebus.Message{})
		for range 3 {
			s.SendDirectly(workQueue, "", lives(8*time.Second))
		}
		for range 3 {
			s.SendDirectly(workQueue, "twice", lives(8*time.Second))
		}
		time.Sleep(4 * time.Second)
		stop()
		stop = s.startMonitor() // it goes on where the other one was
		want := []string{"missed ttl", "missed twice", "missed twice", "missed twice", "missed within", "incomplete complete"}
		r, m := s.receive(workQueue)
		if m.MessageID != "done" {
			t.Fatalf("received %s, want the first", m.MessageID)
		}
		s.Must(r.CompleteMessage(s.Context(), m, nil))
		time.Sleep(8 * time.Second)
		for _, m := range s.Dead(workQueue) {
			if len(m.MessageID) == 32 { // the broker gives one to a message without
				want = append(want, "missed "+m.MessageID)
			}
		}
		if len(want) != 9 {
			t.Errorf("%d events are expected, want 9: three of messages that were sent without names", len(want))
		}
		s.WantEvents(want...)
		s.AdoptPassed(time.Second)
		if got := len(s.Waiting(workQueue)); got != 2 {
			t.Errorf("%d messages wait, want the one without a deadline and the one that only had to be completed", got)
		}
		if got := s.Adopted(); got != 10 {
			t.Errorf("%v messages were adopted, want the ten with deadlines", got)
		}
		stop()
	})
}

// The first adopt pass expires the whole overdue backlog, however large it is, and reads it once.
func TestBacklogIsAdopted(t *testing.T) {
	inModes(t, adopts(workQueue), func(s *scene) {
		s.MeasureClock()
		sender, err := s.Client.NewSender(workQueue, nil)
		s.Must(err)
		for i := range 3 {
			batch, err := sender.NewMessageBatch(s.Context(), nil)
			s.Must(err)
			for j := range 200 {
				id, m := fmt.Sprintf("m-%d-%03d", i, j), lives([]time.Duration{time.Second, time.Hour}[j%2])
				m.MessageID = &id
				s.Must(batch.AddMessage(&m, nil))
			}
			s.Must(sender.SendMessageBatch(s.Context(), batch, nil))
		}
		s.Must(sender.Close(s.Context()))
		time.Sleep(10 * time.Second)
		s.startMonitor()
		time.Sleep(10 * time.Second)
		if got := len(s.Lags(workQueue)); got != 300 {
			t.Errorf("%d messages are dead letters, want 300", got)
		}
		// A message that a broker expired by itself before anybody checked is a dead letter, and was on
		// no queue to be found.
		found := 600
		if s.Expiry == queue.Eager {
			found = 300
		}
		if got := len(s.Hook.Events()); got != found-300 {
			t.Errorf("%d events, want %d", got, found-300)
		}
		if got := s.Adopted(); got != float64(found) {
			t.Errorf("%v messages were adopted, want %d", got, found)
		}
		before, peeks := s.Operations(""), s.Operations("peek")
		time.Sleep(20 * time.Second)
		// An interval in which nothing comes costs two peeks and a note: written, received and
		// completed.
		if ops, peeks := s.Operations("")-before, s.Operations("peek")-peeks; ops > 55 || peeks > 22 {
			t.Errorf("ten intervals without news cost %v operations, %v of them peeks; want 50 and 20, or a little more", ops, peeks)
		}
	})
}

func TestAdoptPassesOfSessionsAndSubscriptions(t *testing.T) {
	inModes(t, func(s *scene, c *broker.Config) {
		withTopic(subscription("a"), subscription("sessions", func(c *broker.SubscriptionSetup) { c.RequiresSession = true }))(s, c)
		withSessions(s, c)
		adopts(topic, workQueue)(s, c)
	}, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		time.Sleep(5 * time.Second)
		m, id := lives(6*time.Second), "s"
		m.SessionID = &id
		s.SendDirectly(topic, "copy", m)
		s.SendDirectly(workQueue, "alone", m)
		time.Sleep(8 * time.Second)
		s.WantEvents("missed alone", "missed copy of a", "missed copy of sessions")
		s.AdoptPassed(time.Second)
	})
}

// Several monitors look through an entity once, and what one leaves the others go on with.
func TestMonitorsThatAdoptSideBySide(t *testing.T) {
	inModes(t, adopts(workQueue), func(s *scene) {
		s.MeasureClock()
		stop := s.startMonitor()
		s.startMonitor()
		s.startMonitor()
		time.Sleep(10 * time.Second)
		var want []string
		send := func(n int) {
			for range n {
				id := fmt.Sprintf("m-%03d", len(want))
				s.SendDirectly(workQueue, id, lives(6*time.Second))
				want = append(want, "missed "+id)
				time.Sleep(300 * time.Millisecond)
			}
		}
		send(20)
		stop()
		send(20)
		time.Sleep(10 * time.Second)
		s.WantEvents(want...)
		s.AdoptPassed(time.Second)
		if got := s.Adopted(); got != 40 {
			t.Errorf("%v messages were adopted, want 40: each once", got)
		}
	})
}

// To look through a queue that is deleted when it is idle would keep it, so nobody does.
func TestQueueThatIsDeletedWhenIdleIsNotAdopted(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.SendDirectly(workQueue, "m", lives(8*time.Second))
		s.CloseDirect(workQueue)
		time.Sleep(4 * time.Minute)
		if got := s.Adopted(); got != 0 {
			t.Errorf("%v messages were adopted, want none", got)
		}
		time.Sleep(2 * time.Minute)
		if _, ok := s.Namespace.Broker.Queue(workQueue); ok {
			t.Error("the queue is there after five minutes without use")
		}
		s.AdoptPassed(time.Second)
	}, adopts(workQueue), func(_ *scene, c *broker.Config) { c.Queues[0].AutoDeleteOnIdle = 5 * time.Minute })
}

// The numbers of a queue that is recreated begin again.
func TestAdoptionOfARecreatedQueue(t *testing.T) {
	inModes(t, adopts(workQueue), func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		for i := range 10 {
			s.SendDirectly(workQueue, fmt.Sprint("old-", i), lives(time.Hour))
		}
		time.Sleep(6 * time.Second)
		ns := s.Namespace.Broker.Default()
		info, err := ns.QueueInfo(workQueue)
		s.Must(err)
		s.Must(ns.DeleteQueue(workQueue))
		_, err = ns.CreateQueue(info.Config)
		s.Must(err)
		s.CloseDirect(workQueue) // its link is gone with its queue
		s.SendDirectly(workQueue, "new", lives(8*time.Second))
		time.Sleep(10 * time.Second)
		s.WantEvents("missed new")
	})
}

// The notes of a monitor queue that is recreated are lost with it, also where one monitor is all
// that there is.
func TestAdoptionGoesOnAfterTheMonitorQueueIsRecreated(t *testing.T) {
	inModes(t, adopts(workQueue), func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		time.Sleep(30 * time.Second)
		s.recreateAs(monitorQueue, func(*broker.QueueConfig) {})
		time.Sleep(5 * time.Minute)
		s.SendDirectly(workQueue, "m", lives(8*time.Second))
		time.Sleep(10 * time.Second)
		s.WantEvents("missed m")
		s.AdoptPassed(time.Second)
	})
}

// A note that cannot be read goes where an operator finds it, and costs nobody a adopt pass.
func TestAdoptNoteThatCannotBeRead(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		kind := "application/vnd.overdue.sweep+json"
		for _, body := range []string{"", "{}", `{"version":2,"entity":"orders","line":"a"}`, `{"version":1,"entity":"orders","line":"","places":{}}`} {
			sender, err := s.Client.NewSender(monitorQueue, nil)
			s.Must(err)
			s.Must(sender.SendMessage(s.Context(), &azservicebus.Message{Body: []byte(body), ContentType: &kind}, nil))
			s.Must(sender.Close(s.Context()))
		}
		s.SendDirectly(workQueue, "m", lives(8*time.Second))
		time.Sleep(10 * time.Second)
		s.WantEvents("missed m")
		for _, m := range s.Dead(monitorQueue) {
			if m.DeadLetterReason != "CompanionMalformed" {
				t.Errorf("dead-lettered for %s", m.DeadLetterReason)
			}
		}
		if got := len(s.Dead(monitorQueue)); got != 4 {
			t.Errorf("%d notes were refused, want 4", got)
		}
	}, adopts(workQueue))
}
