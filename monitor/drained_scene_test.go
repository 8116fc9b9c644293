// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A consumer of the dead-letter queue deletes what comes at once. All that the monitor itself
// has moved is notified, once it has understood that.
func TestDeadLettersThatAreTakenAwayAtOnce(t *testing.T) {
	inModes(t, plain, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		defer s.drainDeadLetters()()
		var ids []string
		for i := range 20 {
			id := fmt.Sprintf("m-%02d", i)
			s.send(workQueue, id, "", "Overdue-Within", fmt.Sprintf(`"%dms"`, 3000+500*i))
			ids = append(ids, id)
		}
		time.Sleep(40 * time.Second)
		if n := len(s.Dead(workQueue)); n != 0 {
			s.Fatalf("%d dead letters are left, want none", n)
		}
		notified := s.Hook.Subjects()
		if s.Expiry == queue.Eager { // eager: the broker has moved them before the monitor could look
			return
		}
		if diff := slices.Compact(slices.Clone(notified)); len(notified) != len(diff) || len(notified) != len(ids) {
			s.Errorf("notified of %v, want of each of %d once", notified, len(ids))
		}
		s.Settled(time.Minute)
	})
}

// The same where slots stand for the messages, from the first one on: all are notified, and each
// event says what shows that the deadline was missed.
func TestSlotsWhoseDeadLettersAreTakenAwayAtOnce(t *testing.T) {
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		defer s.drainDeadLetters()()
		lives := make([]time.Duration, 200)
		for i := range lives {
			lives[i] = 2*time.Second + time.Duration(i*20)*time.Millisecond
		}
		s.sendLives(workQueue, lives)
		time.Sleep(20 * time.Second)
		if n := len(slices.Compact(s.Hook.Subjects())); n != len(lives) || n != len(s.Hook.Events()) {
			s.Errorf("%d events for %d messages, want one for each of %d", len(s.Hook.Events()), n, len(lives))
		}
		for _, e := range s.Hook.Events() {
			if e.Data.Evidence != "deadLetter" && e.Data.Evidence != "expired" {
				s.Errorf("%s: evidence %q, want deadLetter or expired", e.Subject, e.Data.Evidence)
			}
		}
		s.Settled(time.Second)
	})
}

// In a session, a live message stands before each one that is overdue, and somebody empties the
// dead-letter queue. A broker that expires no further than the first live message does so in the scan,
// which waits for more messages. All are notified.
func TestBehindLiveMessagesOfSessionsWhoseDeadLettersAreTakenAwayAtOnce(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	inModes(t, withSessions, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		defer s.drainDeadLetters()()
		var ids []string
		for i := range 10 {
			id, in := fmt.Sprintf("m-%02d", i), session(fmt.Sprint("s-", i))
			s.send(workQueue, "live-"+id, in, "Overdue-Within", `"1h"`)
			s.send(workQueue, id, in, "Overdue-Within", fmt.Sprintf(`"%dms"`, 3000+500*i))
			ids = append(ids, id)
		}
		time.Sleep(20 * time.Second)
		if n := len(s.Waiting(workQueue)); n != len(ids) {
			s.Errorf("%d messages wait, want the %d live ones", n, len(ids))
		}
		if s.Expiry != queue.Eager { // eager: the broker has moved them before the monitor could look
			s.wantNotified(ids...)
		}
	})
}

// drainDeadLetters deletes the dead letters of the work queue as they come, until stop is called.
func (s *scene) drainDeadLetters() (stop func()) {
	s.Helper()
	r, err := s.Client.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	s.Must(err)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = r.ReceiveMessages(ctx, 10, nil) // an error: ctx has ended
		}
	}()
	return func() {
		cancel()
		<-ended
		s.Must(r.Close(s.Context()))
	}
}

// A consumer settles its message late, at the very instants in which the monitor searches for it
// and nudges. It is not known yet whether dead letters stay. So a message that is settled between
// the last peek before the nudge and the first one after it counts as missed. Those are few
// milliseconds, and none once a dead letter was seen to stay.
func TestSettledDuringTheNudge(t *testing.T) {
	for _, known := range []bool{false, true} {
		mistaken := 0
		for after := time.Duration(0); after < 40*time.Millisecond; after += time.Duration(racetest.Sized(1, 4)) * time.Millisecond {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				var want []string
				if known {
					for _, id := range []string{"first", "second"} {
						s.send(workQueue, id, ttl(time.Second))
						want = append(want, id)
						time.Sleep(3 * time.Second)
					}
				}
				s.send(workQueue, "m", ttl(2*time.Second))
				expires := time.Now().Add(2 * time.Second)
				r, m := s.receive(workQueue)
				time.Sleep(time.Until(expires.Add(after)))
				if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
					s.Fatal(err)
				}
				time.Sleep(time.Minute)
				if n := len(s.Hook.Events()); n > len(want) {
					mistaken++
				} else {
					s.wantNotified(want...)
				}
				s.Settled(time.Second)
			})
		}
		most := 3
		if known {
			most = 0
		}
		if mistaken > most {
			t.Errorf("dead letters known to stay: %v: %d settlements within 40 ms were taken for missed deadlines, want %d at most", known, mistaken, most)
		}
	}
}

// While deadlines are being missed somebody begins to delete the dead letters as they come.
// Those of one reading may be lost to that; then the monitor looks before it has the broker
// expire what is overdue, and all are notified.
func TestDeadLettersThatAreTakenAwayFromNowOn(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		const n, every = 80, 200 * time.Millisecond
		for i := range n {
			s.send(workQueue, fmt.Sprintf("m-%03d", i), ttl(5*time.Second+time.Duration(i)*every))
		}
		time.Sleep(10 * time.Second)
		defer s.drainDeadLetters()()
		time.Sleep(30 * time.Second)
		notified := s.Hook.Subjects()
		if all := len(slices.Compact(slices.Clone(notified))); all != len(notified) || all < n-3 {
			s.Errorf("notified of %d messages, %d times, want of all but 3 of %d at least, once", all, len(notified), n)
		}
		s.Settled(time.Minute)
	})
}

// A consumer that is late again and again, and settles at the time of the nudge, is none that
// takes dead letters away: where one lies for longer, nobody does.
func TestSettledDuringManyNudges(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "missed", ttl(time.Second))
		time.Sleep(time.Minute)
		for after := time.Duration(0); after < 40*time.Millisecond; after += 500 * time.Microsecond {
			s.send(workQueue, fmt.Sprint("m-", after), ttl(2*time.Second))
			expires := time.Now().Add(2 * time.Second)
			r, m := s.receive(workQueue)
			time.Sleep(time.Until(expires.Add(after)))
			s.Must(r.CompleteMessage(s.Context(), m, nil))
			s.Must(r.Close(s.Context()))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Minute)
		s.wantNotified("missed")
		s.Settled(time.Second)
	})
}

// A nudge expires what has outlived its time to live, and nothing else. A message with an earlier
// deadline that a consumer settles about then is no missed deadline, whatever becomes due with it.
func TestSettledDuringANudgeThatCannotExpireIt(t *testing.T) {
	for gap := time.Millisecond; gap <= 5*time.Millisecond; gap += time.Millisecond {
		for after := time.Duration(0); after <= 12*time.Millisecond; after += time.Duration(racetest.Sized(1, 4)) * time.Millisecond {
			play(t, func(s *scene) {
				s.stamp = false
				s.MeasureClock()
				s.startMonitor()
				s.send(workQueue, "settled", "", "Overdue-Within", fmt.Sprintf(`"%dms"`, 2000+gap.Milliseconds()))
				sent := time.Now()
				r, m := s.receive(workQueue)
				s.send(workQueue, "missed", ttl(time.Until(sent.Add(2*time.Second))))
				time.Sleep(time.Until(sent.Add(2*time.Second + after)))
				s.Must(r.CompleteMessage(s.Context(), m, nil))
				time.Sleep(10 * time.Second)
				s.wantNotified("missed")
			})
		}
	}
}

// Deadlines are missed faster than checks can come before them, while a consumer completes the dead
// letters as they come. The read right behind each nudge shows most of them. The others were there
// before, while nobody received.
func TestManyDeadLettersThatAreTakenAway(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		s.completeDeadLetters(ctx)
		s.sendBatch(workQueue, 20, time.Minute)                                          // the oldest messages stay
		for _, life := range []time.Duration{2 * time.Second, 2500 * time.Millisecond} { // by these it learns that they are taken
			s.sendBatch(workQueue, 5, life)
		}
		time.Sleep(5 * time.Second)
		lives := s.shuffled(4000, 3*time.Second, 125*time.Microsecond)
		s.sendLives(workQueue, lives)
		time.Sleep(20 * time.Second)
		s.wantAllAccountedFor(len(lives) + 10)
		if n := len(s.Dead(workQueue)); n != 0 {
			s.Errorf("%d dead letters are left, want none", n)
		}
	})
}

// From some moment on, nobody can read the dead letters: a consumer takes each before a peek
// arrives. Messages that were on the work queue while nobody received from it have expired.
func TestDeadLettersThatAreGoneBeforeAnyRead(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		s.completeDeadLetters(ctx)
		s.sendBatch(workQueue, 20, time.Minute)
		lives := s.shuffled(8000, 3*time.Second, 250*time.Microsecond)
		s.sendLives(workQueue, lives[:4000])
		s.sendLives(workQueue, lives[4000:])
		time.Sleep(4 * time.Second) // half of them are due
		defer s.drainDeadLetters()()
		defer s.Namespace.Broker.Default().Inject(broker.Fault{
			Operation: broker.OnManagement, Entity: workQueue, Request: "com.microsoft:peek-message", Delay: 3 * time.Millisecond,
		})()
		time.Sleep(20 * time.Second)
		s.wantAllAccountedFor(len(lives))
		expired := 0
		for _, e := range s.Hook.Events() {
			if e.Data.Evidence == "expired" {
				expired++
			}
		}
		if expired < 100 {
			s.Errorf("%d events rest on what was seen before, want hundreds", expired)
		}
	})
}

// The same while a consumer completes messages of the work queue, the oldest first: none of those
// is notified.
func TestMessagesThatAreCompletedAmongManyDeadLetters(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	play(t, func(s *scene) {
		s.slots = true
		s.MeasureClock()
		s.startMonitor()
		defer s.drainDeadLetters()()
		for _, life := range []time.Duration{2 * time.Second, 2500 * time.Millisecond} {
			s.sendBatch(workQueue, 5, life)
		}
		time.Sleep(5 * time.Second)
		s.sendLives(workQueue, s.shuffled(4000, 3*time.Second, 75*time.Microsecond))
		time.Sleep(2900 * time.Millisecond)
		r, err := s.Client.NewReceiverForQueue(workQueue, nil)
		s.Must(err)
		completed := map[string]bool{}
		for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(s.Context(), time.Millisecond)
			ms, _ := r.ReceiveMessages(ctx, 5, nil) // an error: none is left
			cancel()
			for _, m := range ms {
				if r.CompleteMessage(s.Context(), m, nil) == nil {
					completed[m.MessageID] = true
				}
			}
		}
		time.Sleep(20 * time.Second)
		if len(completed) < 50 {
			s.Fatalf("%d messages were completed, want many", len(completed))
		}
		for _, id := range s.Hook.Subjects() {
			if completed[id] {
				s.Errorf("%s was completed in time, and notified", id)
			}
		}
	})
}

// shuffled returns n times to live from first on, one step apart, in the order of the seed.
func (s *scene) shuffled(n int, first, step time.Duration) []time.Duration {
	lives := make([]time.Duration, n)
	for i := range lives {
		lives[i] = (first + time.Duration(i)*step).Truncate(time.Millisecond) // as the wire has it
	}
	rand.New(rand.NewPCG(testseed.Of(s.T), 0)).Shuffle(n, func(i, j int) { lives[i], lives[j] = lives[j], lives[i] })
	return lives
}

// wantAllAccountedFor wants n messages notified of once, or unknown: a deadline that falls between
// the peek and the nudge of a round leaves no evidence once its letter is taken.
func (s *scene) wantAllAccountedFor(n int) {
	s.Helper()
	all, unknown := s.Hook.Subjects(), int(s.Verdicts(workQueue, "unknown"))
	if each := len(slices.Compact(slices.Clone(all))); each != len(all) || each+unknown != n {
		s.Errorf("%d events for %d messages, and %d unknown; want one for each of %d", len(all), each, unknown, n)
	}
	s.Logf("%d of %d are unknown", unknown, n)
}

// completeDeadLetters receives dead letters of the work queue and completes each, until ctx ends.
func (s *scene) completeDeadLetters(ctx context.Context) {
	s.Helper()
	r, err := s.Client.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	s.Must(err)
	go func() {
		for ctx.Err() == nil {
			ms, _ := r.ReceiveMessages(ctx, 100, nil) // an error: ctx has ended
			for _, m := range ms {
				_ = r.CompleteMessage(ctx, m, nil)
			}
		}
	}()
}
