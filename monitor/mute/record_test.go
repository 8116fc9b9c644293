// SPDX-License-Identifier: Apache-2.0

package mute

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/operations"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A scene is a namespace with a monitor queue, and two processes with a record each.
type scene struct {
	*testing.T
	ns         *brokertest.Namespace
	scheduler  *scheduler.Scheduler
	writes     *Record
	reads      *Record
	operations *prometheus.Registry // of reads
}

func play(t *testing.T, act func(*scene), configure ...func(*broker.Config)) {
	t.Helper()
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, sc *scheduler.Scheduler) {
		if err := sc.MeasureClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := &scene{T: t, ns: ns, scheduler: sc, operations: prometheus.NewRegistry()}
		s.writes, s.reads = s.record(nil), s.record(operations.New(s.operations))
		act(s)
	}, func(c *broker.Config, _ *scheduler.Config) {
		for _, f := range configure {
			f(c)
		}
	})
}

func (s *scene) record(o *operations.Counter) *Record {
	r := New(Config{Links: s.ns.Links(s.T), Queue: bubble.MonitorQueue, Scheduler: s.scheduler, Operations: o})
	s.Cleanup(func() { r.Close(context.Background()) })
	return r
}

func (s *scene) set(entity string, span time.Duration) {
	s.Helper()
	if _, err := s.writes.Set(s.Context(), Mute{Entity: entity}, span); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) wantMuted(want bool) {
	s.Helper()
	if got := s.reads.Muted(s.Context(), "orders"); got != want {
		s.Errorf("Muted = %v, want %v; the last look: %v", got, want, s.reads.err)
	}
}

// companions writes n companions, 200 a minute.
func (s *scene) companions(n int) {
	s.Helper()
	for i := range n {
		s.scheduler.Begin(bubble.CompanionOf(fmt.Sprint("m-", i), time.Now().Add(24*time.Hour+time.Duration(i)*time.Second)))
		if i%200 == 199 {
			time.Sleep(time.Minute)
		}
	}
	time.Sleep(time.Minute)
	if got := len(bubble.OnMonitorQueue(s.T, s.ns)); got != n {
		s.Fatalf("%d companions are on the monitor queue, want %d", got, n)
	}
}

func (s *scene) peeks() float64 {
	s.Helper()
	n, err := testutil.GatherAndCount(s.operations)
	if err != nil || n == 0 {
		return 0
	}
	all, err := s.operations.Gather()
	if err != nil {
		s.Fatal(err)
	}
	return all[0].GetMetric()[0].GetCounter().GetValue()
}

// An event waits for two seconds at most, and those behind it not at all.
func TestNothingIsMutedWhileTheNotesCannotBeRead(t *testing.T) {
	play(t, func(s *scene) {
		s.set("orders", time.Hour)
		s.wantMuted(true)
		time.Sleep(freshness)
		s.ns.Net.Stall(pipenet.Both)
		for _, want := range []time.Duration{lookTimeout, 0, 0} {
			began := time.Now()
			s.wantMuted(false)
			if took := time.Since(began); took != want {
				s.Errorf("an event waits for %v, want %v", took, want)
			}
		}
		if len(s.reads.InForce()) != 0 {
			s.Error("a mute that cannot be read is shown")
		}
		s.ns.Net.Resume(pipenet.Both)
		time.Sleep(freshness)
		s.wantMuted(true)
	})
}

// A check goes on where the last one ended, also where that one had no time to reach the end.
func TestALookReadsOn(t *testing.T) {
	play(t, func(s *scene) {
		s.companions(5000)
		s.set("orders", time.Hour)
		s.ns.Net.Delay(pipenet.Both, 60*time.Millisecond)
		s.wantMuted(false) // 20 pages and a body, each of which takes 120 ms
		time.Sleep(freshness)
		s.wantMuted(true)
		s.ns.Net.Delay(pipenet.Both, 0)
		if n := s.peeks(); n > 30 {
			s.Errorf("two looks took %v peeks, want about 22", n)
		}
		time.Sleep(time.Hour / 2)
		before := s.peeks()
		s.wantMuted(true)
		if n := s.peeks() - before; n > 3 {
			s.Errorf("a look at what has not changed took %v peeks, want 3 at most", n)
		}
	})
}

// In a partitioned monitor queue, what comes later may have a lower number.
func TestMutesOfAPartitionedMonitorQueue(t *testing.T) {
	play(t, func(s *scene) {
		for range 20 {
			s.set("orders", time.Hour)
			time.Sleep(freshness)
			s.wantMuted(true)
			s.set("orders", 0)
			time.Sleep(freshness)
			s.wantMuted(false)
		}
	}, func(c *broker.Config) { c.Queues[0].EnablePartitioning = true })
}

func TestMutesOfAMonitorQueueThatWasRecreated(t *testing.T) {
	play(t, func(s *scene) {
		s.companions(300)
		s.set("bills", time.Hour)
		s.wantMuted(false)
		b := s.ns.Broker.Default()
		err := b.DeleteQueue(bubble.MonitorQueue)
		if err == nil {
			_, err = b.CreateQueue(broker.QueueConfig{Name: bubble.MonitorQueue})
		}
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(freshness)
		s.set("orders", time.Hour)
		s.wantMuted(true)
	})
}

// A process that may write to the monitor queue can leave any number of notes there.
func TestMutesAreBounded(t *testing.T) {
	play(t, func(s *scene) {
		s.set("orders", time.Hour)
		for i := range maxNotes + 100 {
			s.note(i, fmt.Sprintf(`{"version":1,"entity":"q-%d","since":"2000-01-01T00:00:00Z","until":"2000-01-01T00:00:01Z"}`, i))
		}
		s.note(-1, "{}")
		time.Sleep(freshness)
		s.wantMuted(true)
		if n := len(s.reads.notes); n != maxNotes {
			s.Errorf("%d notes are known, want %d", n, maxNotes)
		}
		if _, err := s.writes.Set(s.Context(), Mute{Entity: "bills"}, time.Hour); err == nil {
			s.Error("one more mute is accepted")
		}
		time.Sleep(2 * time.Hour)
		s.wantMuted(false)
		if n := len(s.reads.notes) + len(s.reads.stated) + len(s.reads.todo); n != 0 {
			s.Errorf("%d notes are still known when all are over", n)
		}
	})
}

// note writes a note as anybody can.
func (s *scene) note(i int, body string) {
	s.Helper()
	err := s.scheduler.Keep(s.Context(), scheduler.Note{
		ID:          notePrefix + fmt.Sprint(i),
		Due:         time.Now().Add(time.Hour),
		ContentType: NoteType,
		Subject:     "mute",
		Body:        []byte(body),
	})
	if err != nil {
		s.Fatal(err)
	}
}

func TestOnlyWhatIsMutedCanBeEnded(t *testing.T) {
	play(t, func(s *scene) {
		if _, err := s.writes.Set(s.Context(), Mute{Entity: "orders"}, 0); !errors.Is(err, ErrNotMuted) {
			s.Errorf("Set = %v, want %v", err, ErrNotMuted)
		}
		if n := len(bubble.OnMonitorQueue(s.T, s.ns)); n != 0 {
			s.Errorf("%d notes are on the monitor queue, want none", n)
		}
	})
}
