// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"slices"
	"testing"
	"time"

	"overdue/internal/operations"
	"overdue/monitor/mute"
	"overdue/scheduler"
)

func (s *scene) newMutes(sc *scheduler.Scheduler, o *operations.Counter) *mute.Record {
	cfg := mute.Config{
		Links:      s.Namespace.Links(s.T),
		Queue:      monitorQueue,
		Scheduler:  sc,
		Operations: o,
		Log:        s.Logger(),
	}
	if s.NewStore != nil {
		cfg.Store = s.NewStore()
	}
	return mute.New(cfg)
}

// setMute mutes as a command does: it is a process of its own.
func (s *scene) setMute(entity string, span time.Duration) {
	s.Helper()
	sc := s.newScheduler(nil)
	s.Must(sc.MeasureClock(s.Context()))
	r := s.newMutes(sc, nil)
	_, err := r.Set(s.Context(), mute.Mute{Entity: entity}, span)
	s.Must(err)
	r.Close(s.Context())
}

// misses sends a message to each queue, and waits until both have missed their deadlines. It returns
// those that the sink was notified of.
func (s *scene) misses(name string) (notified []string) {
	s.Helper()
	known := len(s.Hook.Events())
	for _, queue := range []string{workQueue, otherQueue} {
		s.send(queue, name+" on "+queue, ttl(2*time.Second))
	}
	time.Sleep(4 * time.Second)
	for _, e := range s.Hook.Events()[known:] {
		notified = append(notified, e.Subject)
	}
	slices.Sort(notified)
	return notified
}

// While a queue is muted no sink gets its events, from no monitor, also from one that starts
// meanwhile. Its messages are expired and counted as ever, and the events of other queues go out.
// The mute ends by itself, or when somebody ends it, and leaves nothing on the monitor queue.
func TestAMutedQueueIsExpiredInSilence(t *testing.T) {
	inStores(t, func(s *scene) {
		s.mutes, s.monitored[otherQueue] = true, true
		s.MeasureClock()
		both := func(name string) []string { return []string{name + " on " + workQueue, name + " on " + otherQueue} }
		other := func(name string) []string { return both(name)[1:] }
		wants := func(name string, want []string) {
			s.Helper()
			if got := s.misses(name); !slices.Equal(got, want) {
				s.Errorf("the sink was notified of %q, want %q", got, want)
			}
		}
		stop := []func(){s.startMonitor(), s.startMonitor()}
		wants("before", both("before"))

		s.setMute("ORDERS", 2*time.Minute)
		time.Sleep(10 * time.Second)
		wants("muted", other("muted"))
		stop[0]()
		s.startMonitor()
		stop[1]()
		wants("after a restart", other("after a restart"))
		time.Sleep(2 * time.Minute)
		wants("over", both("over"))

		s.setMute(workQueue, time.Hour)
		s.setMute(workQueue, time.Minute)
		time.Sleep(10 * time.Second)
		wants("muted again", other("muted again"))
		time.Sleep(time.Minute)
		stop = []func(){s.startMonitor()} // finds the first of the two, too
		wants("over early", both("over early"))

		s.setMute(workQueue, time.Hour)
		time.Sleep(10 * time.Second)
		wants("muted at last", other("muted at last"))
		s.setMute(workQueue, 0)
		time.Sleep(10 * time.Second)
		wants("ended", both("ended"))
		stop[0]()
		s.startMonitor()
		wants("ended for good", both("ended for good"))

		if missed, dead := s.Verdicts(workQueue, "missed"), len(s.Dead(workQueue)); missed != 9 || dead != 9 {
			s.Errorf("%v deadlines count as missed, %d messages are dead letters; want 9 of both", missed, dead)
		}
		if n := s.Muted(workQueue); n != 4 {
			s.Errorf("%v events count as muted, want 4", n)
		}
		s.Settled(2 * time.Hour)
	})
}
