// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/operations"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// Bounds for the cost of ten thousand deadlines a second: the targets of `overdue bench`, which
// internal/testing/arch holds these to.
const (
	mostLag        = 10 * time.Millisecond // of 99 in 100
	mostOperations = 0.12                  // a message, where slots stand for messages
)

// Ten thousand deadlines a second are kept as if they were few: each message has a time to live of
// its own, and nobody receives. All of them share the cost.
func TestTenThousandDeadlinesASecond(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	seed := testseed.Of(t)
	for _, slots := range []bool{true, false}[:racetest.Sized(2, 1)] {
		t.Run(fmt.Sprint("slots ", slots), func(t *testing.T) {
			play(t, func(s *scene) {
				s.slots = slots
				s.MeasureClock()
				s.startMonitor()
				const batch, spread = 1000, 500 // milliseconds, over which the deadlines of 5,000 are spread
				n := 5 * batch
				if !slots {
					n = 2 * batch // it is the same, and costs more
				}
				rng := rand.New(rand.NewPCG(seed, 0))
				s.sendLives(workQueue, slices.Repeat([]time.Duration{4 * time.Second}, 10)) // by these it learns that dead letters stay
				time.Sleep(500 * time.Millisecond)
				s.sendLives(workQueue, slices.Repeat([]time.Duration{4 * time.Second}, 10))
				for range n / batch {
					lives := make([]time.Duration, batch)
					for i := range lives {
						lives[i] = time.Duration(5000+rng.IntN(spread)) * time.Millisecond
					}
					s.sendLives(workQueue, lives)
				}
				time.Sleep(20 * time.Second)
				n += 20
				if notified := s.Hook.Subjects(); len(notified) != n || len(slices.Compact(notified)) != n {
					s.Errorf("%d events, want one for each of %d messages", len(notified), n)
				}
				for _, e := range s.Hook.Events() {
					if e.Data.LagMs < 0 || e.Data.LagMs > 100 {
						s.Errorf("%s: notified that it was dead-lettered %d ms late, want 0 to 100", e.Subject, e.Data.LagMs)
						break
					}
				}
				lags := s.Lags(workQueue)
				if len(lags) != n {
					s.Fatalf("%d dead letters, want %d", len(lags), n)
				}
				if p99 := lags[n*99/100]; p99 > mostLag {
					s.Errorf("one in a hundred is dead-lettered more than %v late, want %v at most", p99, mostLag)
				}
				ops := float64(s.written.Load()) + s.Operations("")
				companions := float64(s.written.Load()) + s.Operations("receive") + s.Operations("complete")
				s.Logf("%.3f operations a message, of them %.3f for companions; lag %v, %v at most", ops/float64(n), companions/float64(n), lags[n/2], lags[n-1])
				// Peeks and nudges, where companions name their messages.
				most := .35
				if slots {
					most, companions = mostOperations, 0
				}
				if got := (ops - companions) / float64(n); got > most {
					s.Errorf("%.3f operations a message, want %v at most", got, most)
				}
				s.Settled(time.Second)
			})
		})
	}
}

// Messages that are sent at once have deadlines all over the time that follows. Most of that time
// has slots; the first companions are named. Nobody receives. A read for either serves both: a
// message costs a few hundredths of a peek.
func TestSlotsAndNamesShareWhatIsRead(t *testing.T) {
	racetest.Skip(t, "it needs thousands of messages; small scenes show the races")
	seed := testseed.Of(t)
	n := racetest.Sized(20_000, 5_000)
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		rng := rand.New(rand.NewPCG(seed, 0))
		lives := make([]time.Duration, n)
		for i := range lives {
			lives[i] = 5*time.Second + time.Duration(rng.IntN(5000))*time.Millisecond
		}
		// Until it is known that dead letters stay, each message is searched for by itself.
		const first = 2
		for range first {
			s.sendLives(workQueue, []time.Duration{time.Second})
			time.Sleep(3 * time.Second)
		}
		before := s.Operations(operations.Peek)
		for part := range slices.Chunk(lives, 1000) {
			s.sendLives(workQueue, part)
		}
		time.Sleep(15 * time.Second)
		if notified := s.Hook.Subjects(); len(notified) != n+first || len(slices.Compact(notified)) != n+first {
			s.Errorf("%d events, want one for each of %d messages", len(notified), n+first)
		}
		peeks := s.Operations(operations.Peek) - before
		s.Logf("%v peeks", peeks)
		if most := float64(racetest.Sized(1400, 1000)); peeks > most {
			s.Errorf("%v peeks for %d messages, want %v at most", peeks, n, most)
		}
		s.Settled(time.Second)
	}, early, func(s *scene, _ *broker.Config) { s.slots, s.auto = true, true })
}

// sendLives sends a message for each time to live, all in one request.
func (s *scene) sendLives(queue string, lives []time.Duration) {
	s.Helper()
	var body strings.Builder
	for i, life := range lives {
		s.sent++
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"Body":"b","BrokerProperties":{"MessageId":"b-%d",%s}}`, s.sent, ttl(life))
	}
	r := httptest.NewRequest(http.MethodPost, "/"+queue+"/messages", strings.NewReader("["+body.String()+"]"))
	r.Header.Set("Content-Type", "application/vnd.microsoft.servicebus.json")
	w := httptest.NewRecorder()
	s.proxy.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		s.Fatalf("send of %d = %d %s", len(lives), w.Code, w.Body)
	}
}

// However many are due at once, a sink gets a bounded number at a time, and no fewer where it is
// slow.
func TestManyEventsAreNotifiedInTurn(t *testing.T) {
	const n, atOnce = 1000, 64
	for _, test := range []struct{ takes, within time.Duration }{
		{0, 300 * time.Millisecond},
		{1500 * time.Microsecond, 300 * time.Millisecond},
		{time.Second, (n + atOnce - 1) / atOnce * 1100 * time.Millisecond},
	} {
		t.Run(test.takes.String(), func(t *testing.T) {
			play(t, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				sink := &busySink{takes: test.takes}
				s.worker.SetAlerters([]alert.Alerter{sink})
				lives := make([]time.Duration, n)
				for i := range lives {
					lives[i] = 5 * time.Second
				}
				s.sendLives(workQueue, lives)
				time.Sleep(30 * time.Second)
				sink.mu.Lock()
				defer sink.mu.Unlock()
				if sink.notified != n || sink.most > atOnce || sink.last.Sub(sink.first) > test.within {
					t.Errorf("%d events, %d at once, within %v; want %d, at most %d, within %v", sink.notified, sink.most, sink.last.Sub(sink.first), n, atOnce, test.within)
				}
			}, early)
		})
	}
}

// A busySink takes some time for each event.
type busySink struct {
	takes time.Duration

	mu                  sync.Mutex
	now, most, notified int
	first, last         time.Time
}

func (b *busySink) Name() string { return "busy" }

func (b *busySink) Alert(context.Context, alert.Event) error {
	b.mu.Lock()
	b.now++
	b.most = max(b.most, b.now)
	if b.first.IsZero() {
		b.first = time.Now()
	}
	b.mu.Unlock()
	time.Sleep(b.takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now--
	b.notified++
	b.last = time.Now()
	return nil
}
