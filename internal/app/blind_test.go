// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/history"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/monitor"
	"overdue/scheduler"
)

// A blindScene is a namespace with the queues orders and bills, and a monitor with one sink.
type blindScene struct {
	*testing.T
	space   *brokertest.Namespace
	e       *environment
	clock   *companions
	sight   *sight
	sink    *recordingSink
	pool    alert.Pool // nil: without Redis
	history *history.History
}

// A recordingSink takes every event.
type recordingSink struct {
	mu     sync.Mutex
	events []alert.Event
}

func (*recordingSink) Name() string { return "recording" }

func (r *recordingSink) Alert(_ context.Context, e alert.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	return nil
}

func playBlind(t *testing.T, act func(*blindScene)) {
	c, err := loadText(t, "namespace: \""+config.ConnectionString("broker.test:5672", config.AnyKeyName, config.AnyKey)+
		"\"\nmonitor: {entities: [{queue: orders}, {queue: bills}]}\n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &blindScene{T: t, sink: &recordingSink{}, history: history.InMemory(history.Config{})}
		s.space = brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Queues = []broker.QueueConfig{
				{Name: "orders", DeadLetteringOnMessageExpiration: true},
				{Name: "bills", DeadLetteringOnMessageExpiration: true},
				{Name: "overdue-monitor", LockDuration: 10 * time.Second, MaxDeliveryCount: 2000},
			}
		})
		s.e = newEnvironment(config.RoleMonitor, c, zap.NewNop(), zap.NewAtomicLevel())
		s.e.admin.History = s.history
		s.e.self.Host, s.e.self.Admin = "host-1", "0.0.0.0:9095"
		defer func() {
			s.e.life.Hurry()
			if err := s.e.life.Drain(); err != nil {
				t.Error(err)
			}
		}()
		act(s)
	})
}

// start starts the monitor.
func (s *blindScene) start() {
	s.Helper()
	ns, err := connect.Parse(config.ConnectionString("broker.test:5672", config.AnyKeyName, config.AnyKey))
	must(s.T, err)
	links := s.space.Links(s.T)
	sc, err := scheduler.New(scheduler.Config{MonitorQueue: "overdue-monitor", Links: links})
	must(s.T, err)
	s.e.life.Links("scheduler", sc.Close)
	s.clock = &companions{scheduler: sc, upstream: newUpstream(ns, links, []string{"overdue-monitor"}, zap.NewNop())}
	s.clock.upstream.dial, s.clock.upstream.tryWrite = s.space.Dial, sc.TryWrite
	s.sight = newSight(s.e, s.clock, "broker.test", func(name string) map[string]string { return map[string]string{"team": name + "-team"} })
	if s.pool != nil {
		s.sight.fleet = &blindFleet{pool: s.pool}
	}
	s.sight.worker, err = monitor.New(monitor.Config{
		Links: links, Scheduler: sc, Queues: s.e.cfg.AllMonitorQueues(), Namespace: "broker.test",
		Entities: []string{"orders", "bills"}, Alerters: []alert.Alerter{s.sink}, Judged: s.sight.judged, Lost: s.sight.lost,
	})
	must(s.T, err)
	s.e.life.Background("upstream", s.clock.upstream.run)
	s.e.life.Background("monitor", s.sight.worker.Run)
	s.e.life.Background("sight", s.sight.run)
	time.Sleep(time.Second)
	must(s.T, sc.MeasureClock(s.Context()))
	time.Sleep(time.Minute) // it begins to see
}

// send sends n messages to a queue, with companions.
func (s *blindScene) send(queue string, n int, ttl time.Duration) {
	s.Helper()
	sender, err := s.space.Client(s.T).NewSender(queue, nil)
	must(s.T, err)
	for i := range n {
		id := fmt.Sprint(queue, "-", ttl, "-", i)
		now := s.clock.scheduler.Now()
		refs := []scheduler.Reference{{
			MessageID: id, Sent: now.Time, From: now.StampedSince(), Until: now.Time.Add(time.Second), Deadline: now.Time.Add(ttl), Within: ttl, Stated: "ttl",
		}}
		s.clock.scheduler.Expect(queue, refs)
		must(s.T, s.clock.scheduler.Schedule(s.Context(), scheduler.Companion{Entity: queue, References: refs}))
		must(s.T, sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: &id, TimeToLive: &ttl}, nil))
	}
	must(s.T, sender.Close(s.Context()))
}

// receive completes messages of a queue.
func (s *blindScene) receive(queue string, n int) {
	s.Helper()
	r, err := s.space.Client(s.T).NewReceiverForQueue(queue, nil)
	must(s.T, err)
	all, err := r.ReceiveMessages(s.Context(), n, nil)
	must(s.T, err)
	for _, m := range all {
		must(s.T, r.CompleteMessage(s.Context(), m, nil))
	}
	must(s.T, r.Close(s.Context()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reported returns the events about blind times.
func (s *blindScene) reported() (all []alert.Event) {
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	for _, e := range s.sink.events {
		if e.Type == alert.TypeBlind {
			all = append(all, e)
		}
	}
	return all
}

// wantTold wants one event about a blind time of about that length.
func (s *blindScene) wantTold(length time.Duration, reason string, counts map[string]alert.BlindCounts) {
	s.Helper()
	all := s.reported()
	if len(all) != 1 {
		s.Fatalf("reported %d times, want once: %+v", len(all), all)
	}
	b := all[0].Blind
	if d := b.To.Sub(b.From); (d-length).Abs() > 20*time.Second || !strings.Contains(b.Reason, reason) || b.SoFar {
		s.Errorf("blind for %v because %s, so far %t; want about %v because %s", d, b.Reason, b.SoFar, length, reason)
	}
	got := map[string]alert.BlindCounts{}
	for _, e := range b.Entities {
		got[e.Entity] = e.BlindCounts
		if want := e.Entity + "-team"; e.Labels["team"] != want {
			s.Errorf("labels of %s are %v, want team %s", e.Entity, e.Labels, want)
		}
	}
	if diff := cmp.Diff(counts, got); diff != "" {
		s.Errorf("counts -want +got:\n%s", diff)
	}
}

func TestABlindTimeIsToldWithItsDeadlines(t *testing.T) {
	for name, lose := range map[string]func(*pipenet.Network){
		"the namespace refuses connections": func(n *pipenet.Network) { n.Refuse(true); n.Cut() },
		"the namespace does not answer":     func(n *pipenet.Network) { n.Stall(pipenet.Both) },
	} {
		t.Run(name, func(t *testing.T) {
			playBlind(t, func(s *blindScene) {
				s.start()
				s.send("orders", 4, 30*time.Second) // missed before
				s.send("orders", 3, 2*time.Minute)  // missed, and found late
				s.send("bills", 1, 3*time.Minute)   // likewise
				s.send("bills", 2, 20*time.Minute)  // missed long after
				time.Sleep(time.Minute)
				lose(s.space.Net)
				time.Sleep(5 * time.Minute)
				s.space.Net.Refuse(false)
				s.space.Net.Resume(pipenet.Both)
				time.Sleep(time.Hour)
				s.wantTold(5*time.Minute, "did not answer", map[string]alert.BlindCounts{
					"orders": {Deadlines: 3, Late: 3}, "bills": {Deadlines: 1, Late: 1},
				})
			})
		})
	}
}

func TestAShortBlindTimeIsToldIfItHarmedADeadline(t *testing.T) {
	for harms, n := range map[bool]int{false: 0, true: 1} {
		playBlind(t, func(s *blindScene) {
			s.start()
			if harms {
				s.send("orders", 1, 31*time.Second)
			}
			time.Sleep(30 * time.Second)
			s.space.Net.Refuse(true)
			s.space.Net.Cut()
			time.Sleep(8 * time.Second) // the next attempts come well within 30 s
			s.space.Net.Refuse(false)
			time.Sleep(10 * time.Minute)
			if got := len(s.reported()); got != n {
				t.Errorf("a short blind time that harms a deadline (%t) is reported %d times, want %d", harms, got, n)
			}
		})
	}
}

// Messages that are still on the work queues get new companions. The others are lost.
func TestAMonitorQueueThatIsDeletedIsTold(t *testing.T) {
	playBlind(t, func(s *blindScene) {
		s.start()
		s.send("orders", 3, 2*time.Minute)
		s.send("bills", 2, time.Hour)
		time.Sleep(time.Minute)
		must(t, s.space.Broker.Default().DeleteQueue("overdue-monitor"))
		s.receive("bills", 1)
		time.Sleep(3 * time.Minute)
		must(t, s.space.Broker.AddQueue(broker.QueueConfig{Name: "overdue-monitor", LockDuration: 10 * time.Second, MaxDeliveryCount: 2000}))
		time.Sleep(20 * time.Minute)
		s.wantTold(3*time.Minute, "the monitor queue did not exist", map[string]alert.BlindCounts{
			"orders": {Deadlines: 3, Late: 3}, "bills": {Lost: 1},
		})
	})
}

// Another monitor may have seen what this one did not, so it speaks only if deadlines were left to it.
func TestAFrozenProcessSpeaksOfTheDeadlinesThatItFound(t *testing.T) {
	for n, counts := range []map[string]alert.BlindCounts{nil, {"orders": {Deadlines: 1}}} {
		playBlind(t, func(s *blindScene) {
			s.start()
			s.sight.mu.Lock()
			s.sight.looked = s.sight.looked.Add(-time.Minute) // as after a minute without a check
			s.sight.mu.Unlock()
			for range n {
				s.sight.judged("orders", "met", s.clock.scheduler.Now().Time.Add(-30*time.Second), 0)
				s.sight.judged("orders", "met", s.clock.scheduler.Now().Time.Add(-2*time.Minute), 0) // before
			}
			time.Sleep(10 * time.Minute)
			if n == 0 {
				if got := s.reported(); len(got) != 0 {
					t.Errorf("reported %+v although no deadline was found", got)
				}
				return
			}
			s.wantTold(time.Minute, "the process was frozen", counts)
		})
	}
}

// A consumer that holds a message may do so for long. The rest is reported after five minutes.
func TestABlindTimeIsToldSoFar(t *testing.T) {
	playBlind(t, func(s *blindScene) {
		s.start()
		s.space.Net.Stall(pipenet.Both)
		time.Sleep(5 * time.Minute)
		s.space.Net.Resume(pipenet.Both)
		deadline := s.clock.scheduler.Now().Time.Add(-time.Minute)
		for range 40 {
			s.sight.judged("orders", "", deadline, 0)
			time.Sleep(10 * time.Second)
		}
		all := s.reported()
		if len(all) != 1 || !all[0].Blind.SoFar {
			t.Fatalf("reported %+v, want once, so far", all)
		}
	})
}

// A pool shares parts in memory, as Redis does between processes.
type memoryPool struct {
	mu    sync.Mutex
	parts map[string]string
	note  string
}

func (p *memoryPool) Add(_ context.Context, _, part string, body []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[part] = string(body)
	return nil
}

func (p *memoryPool) Claim(context.Context, string) (mine bool, parts map[string]string, note string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return true, maps.Clone(p.parts), p.note, nil
}

func (p *memoryPool) Release(_ context.Context, _, note string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = note
	return nil
}

// Monitors that share a Redis report a blind time once, with the sums of all.
func TestAFleetTellsOfABlindTimeOnce(t *testing.T) {
	playBlind(t, func(s *blindScene) {
		pool := &memoryPool{parts: map[string]string{}}
		s.pool = pool
		s.start()
		s.send("orders", 2, time.Minute)
		s.space.Net.Stall(pipenet.Both)
		time.Sleep(2 * time.Minute)
		s.space.Net.Resume(pipenet.Both)
		now := s.clock.scheduler.Now().Time
		other := alert.Blind{From: now.Add(-3 * time.Minute), To: now, Reason: "the namespace did not answer"}
		other.SetEntities(map[string]alert.BlindCounts{"bills": {Deadlines: 5}, "orders": {Deadlines: 1, Unknown: 1}},
			func(name string) map[string]string { return map[string]string{"team": name + "-team"} })
		body, err := json.Marshal(alert.NewBlind("broker.test", "host-1:9096", other))
		must(t, err)
		must(t, pool.Add(t.Context(), "", "other", body))
		time.Sleep(5 * time.Minute)
		s.wantTold(3*time.Minute, "did not answer", map[string]alert.BlindCounts{
			"orders": {Deadlines: 3, Late: 2, Unknown: 1}, "bills": {Deadlines: 5},
		})
		if kept := s.history.Find(func(e *alert.Event) bool { return e.Blind != nil }, 10); len(kept) != 1 {
			t.Errorf("the history has %+v, want one blind time", kept)
		}
		if got := s.reported()[0].Subject; got != "host-1:9095, host-1:9096" {
			t.Errorf("reported for %s, want both monitors of one host", got)
		}
		// The other one comes late: its part is reported.
		late := &blindFleet{pool: pool, part: "other", added: time.Now().Add(-gatherTime), to: other.To}
		if _, isOurs, err := late.join(t.Context(), alert.NewBlind("broker.test", "host-1:9096", other)); isOurs || err != nil {
			t.Errorf("the other monitor tells it again: %t, %v", isOurs, err)
		}
	})
}

// Each monitor that was blind has it in its history, also if another one reports it.
func TestABlindTimeThatAnotherMonitorReportsIsInTheHistory(t *testing.T) {
	playBlind(t, func(s *blindScene) {
		note, err := json.Marshal(blindNote{Until: time.Now().Add(time.Hour)})
		must(t, err)
		s.pool = &memoryPool{parts: map[string]string{}, note: string(note)}
		s.start()
		s.space.Net.Stall(pipenet.Both)
		time.Sleep(2 * time.Minute)
		s.space.Net.Resume(pipenet.Both)
		time.Sleep(5 * time.Minute)
		if reported := s.reported(); len(reported) != 0 {
			t.Errorf("reported %+v, which another monitor has done", reported)
		}
		kept := s.history.Find(func(e *alert.Event) bool { return e.Blind != nil }, 10)
		if len(kept) != 1 || kept[0].Event.Blind.Reason != "the namespace did not answer" {
			t.Errorf("the history has %+v, want the blind time", kept)
		}
	})
}
