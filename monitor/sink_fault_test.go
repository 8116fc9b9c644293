// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/racetest"
	"overdue/scheduler"
)

// A sink that is down holds nothing up and loses nothing: the events come when it is back.
func TestSinkThatIsDown(t *testing.T) {
	inStores(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.Hook.Answer(http.StatusInternalServerError)
		const n = 20
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(2*time.Second))
		}
		time.Sleep(3 * time.Second)
		if lags := s.Lags(workQueue); len(lags) != n {
			s.Errorf("%d dead letters while the sink is down, want all %d", len(lags), n)
		}
		time.Sleep(5 * time.Minute)
		s.emptyDeadLetters(n) // what is still to be notified does not live there
		s.Hook.Answer(http.StatusOK)
		time.Sleep(6 * time.Minute)
		notifiedOnceEach(s, n)
	})
}

// An alert may take longer than the lock of its companion lasts. The companion that comes back
// meanwhile must not be taken for another one: it is all that is left of the alert.
func TestAlertThatOutlastsItsLock(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.Hook.Answer(http.StatusInternalServerError)
		s.send(workQueue, "m", ttl(time.Second))
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if c := s.Queue(monitorQueue).Counts(); c.Active+c.Scheduled == 0 {
				s.Fatalf("no companion is left of an alert that nobody has taken")
			}
		}
		s.Hook.Answer(http.StatusOK)
		time.Sleep(time.Minute)
		notifiedOnceEach(s, 1)
	}, func(_ *scene, c *broker.Config) { c.Queues[2].LockDuration = 5 * time.Second })
}

// Most references of one companion stay together when it is rewritten. A companion for each message
// would make a sink that is down for a day cost far more than the sends did.
func TestRewrittenCompanionStaysWhole(t *testing.T) {
	racetest.Skip(t, "it lasts for days of fake time")
	inStores(t, func(s *scene) {
		s.startMonitor()
		s.Hook.Answer(http.StatusInternalServerError)
		sender, err := s.Client.NewSender(workQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		const n = 100
		life := time.Second
		var refs []scheduler.Reference
		for i := range n {
			id := fmt.Sprint("m-", i)
			if err := sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: &id, TimeToLive: &life}, nil); err != nil {
				s.Fatal(err)
			}
			refs = append(refs, scheduler.Reference{MessageID: id, Sent: time.Now(), Within: life, Deadline: time.Now().Add(life), Stated: "ttl"})
		}
		if err := s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, Due: time.Now().Add(life), References: refs}); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		// Events that were tried and those that only waited have different numbers of attempts.
		if left := s.CompanionsLeft(); left > n*2/3 {
			s.Errorf("%d companions are left of one, want two thirds of the messages at most", left)
		}
		s.Hook.Answer(http.StatusOK)
		time.Sleep(6 * time.Minute)
		notifiedOnceEach(s, n)
	})
}

// While one sink is down the others are notified once, also over a change of monitors.
func TestSinkThatIsDownDoesNotRepeatTheOthers(t *testing.T) {
	inStores(t, func(s *scene) {
		down := hooktest.New(s.T, s.Sinks, "down")
		down.Answer(http.StatusInternalServerError)
		s.moreHooks = []string{"down"}
		s.MeasureClock()
		stop := s.startMonitor()
		s.send(workQueue, "m", ttl(2*time.Second))
		time.Sleep(time.Minute)
		stop()
		s.startMonitor()
		time.Sleep(4 * time.Minute)
		if got := len(s.Hook.Events()); got != 1 {
			s.Errorf("the sink that is well was notified %d times, want once", got)
		}
		down.Answer(http.StatusOK)
		time.Sleep(6 * time.Minute)
		if got := len(down.Events()); got != 1 {
			s.Errorf("the sink that was down was notified %d times, want once", got)
		}
		notifiedOnceEach(s, 1)
	})
}

// emptyDeadLetters takes n messages out of the dead-letter queue, as an operator would.
func (s *scene) emptyDeadLetters(n int) {
	s.Helper()
	r, err := s.Client.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = r.Close(s.Context()) }()
	for n > 0 {
		ms, err := r.ReceiveMessages(s.Context(), n, nil)
		if err != nil {
			s.Fatal(err)
		}
		n -= len(ms)
	}
}

// A monitor that stops hands back what it holds; the next one goes on at once.
func TestMonitorThatIsReplaced(t *testing.T) {
	inStores(t, func(s *scene) {
		s.MeasureClock()
		const n = 200
		stop := s.startMonitor()
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Duration(1000+20*i)*time.Millisecond))
		}
		_, locked := s.receive(workQueue) // stays in flight over every change
		for range 5 {
			time.Sleep(time.Second)
			stop()
			stop = s.startMonitor()
		}
		time.Sleep(5 * time.Second)
		if lags := s.Lags(workQueue); len(lags) != n-1 || lags[n-2] > time.Second {
			s.Errorf("%d dead letters, the latest %v late, want %d and a second at most", len(lags), lags[max(len(lags)-1, 0)], n-1)
		}
		time.Sleep(time.Until(*locked.LockedUntil) + time.Second)
		notifiedOnceEach(s, n)
	})
}

// One companion names two messages, of which one is notified when the monitor stops. Its successor
// gets the other only.
func TestMonitorThatStopsDoesNotNotifyAgain(t *testing.T) {
	inStores(t, func(s *scene) {
		stop := s.startMonitor()
		sender, err := s.Client.NewSender(workQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		life := time.Second
		var refs []scheduler.Reference
		for _, id := range []string{"held", "missed"} {
			if err := sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: &id, TimeToLive: &life}, nil); err != nil {
				s.Fatal(err)
			}
			refs = append(refs, scheduler.Reference{MessageID: id, Sent: time.Now(), Within: life, Deadline: time.Now().Add(life), Stated: "ttl"})
		}
		if err := s.Scheduler.Schedule(s.Context(), scheduler.Companion{Entity: workQueue, Due: time.Now().Add(life), References: refs}); err != nil {
			s.Fatal(err)
		}
		_, locked := s.receive(workQueue)
		time.Sleep(5 * time.Second)
		stop()
		s.startMonitor()
		time.Sleep(time.Until(*locked.LockedUntil) + 2*time.Second)
		notifiedOnceEach(s, 2)
	})
}
