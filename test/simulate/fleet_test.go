// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/monitorqueue"
	"overdue/internal/redisstore"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// A fleet is a load and who carries it.
type fleet struct {
	proxies, monitors, entities int
	rate                        float64 // messages a second, of all proxies together
	deadline                    time.Duration
	missed                      float64
	lasts                       time.Duration // the time in which companions are counted
	monitorQueues               int
}

// senders is how many proxies send to one entity: proxy i sends to entity i modulo entities.
func (f *fleet) senders() int { return max(f.proxies/f.entities, 1) }

const (
	warmUp = 2 * time.Second // until the rates are known to the proxies
	// roundTrip is that of a transfer to the monitor queue.
	roundTrip = 5 * time.Millisecond
	// uncertainty is how well the proxies know the broker's clock.
	uncertainty = time.Millisecond
)

// A due companion is one on the monitor queue.
type due struct {
	entity     string
	at         time.Time
	slot       bool
	start, end time.Time          // of the slot
	deadlines  map[int64]struct{} // of the messages that it names, in nanoseconds
	bytes      int
}

// queue is the simulated monitor queue: what the companion store is to a scheduler.
type queue struct {
	mu        sync.Mutex
	counts    bool
	transfers int
	all       []due
	err       error
}

// Put accepts companions after a round trip.
func (q *queue) Put(_ context.Context, items []redisstore.Item) error {
	time.Sleep(roundTrip)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.counts {
		return nil
	}
	q.transfers++
	for i := range items {
		c, err := scheduler.ParseCompanion(items[i].Body)
		if err != nil {
			q.err = err
			return err
		}
		d := due{entity: c.Entity, at: items[i].Due, slot: c.IsSlot(), bytes: len(items[i].Body)}
		if d.slot {
			d.start, d.end = c.SlotStart(), c.SlotEnd
		} else {
			d.deadlines = map[int64]struct{}{}
			for _, r := range c.References {
				d.deadlines[r.Deadline.UnixNano()] = struct{}{}
			}
		}
		q.all = append(q.all, d)
	}
	return nil
}

// Withdraw is not asked: the fleet cancels nothing.
func (q *queue) Withdraw(context.Context, []string) ([]string, error) { return nil, nil }

// A tally is what a fleet did in a second, on average.
type tally struct {
	messages, slots, each, transfers float64
	operations                       map[string]float64
	busiestMonitor                   float64 // its share of the operations of all
	fullestQueue                     float64 // the share of companions on the fullest monitor queue
	bodyBytes                        float64 // of a companion, without what the broker adds
}

// companions is how many were written.
func (t *tally) companions() float64 { return t.slots + t.each }

// total is the sum of all operations.
func (t *tally) total() (sum float64) {
	for _, n := range t.operations {
		sum += n
	}
	return sum
}

// outcome collects the messages.
type outcome struct {
	mu       sync.Mutex
	messages int
	missed   map[string][]time.Time // deadlines, by entity
	err      error
}

// Scheduled takes the result of a companion.
func (o *outcome) Scheduled(err error) {
	if err != nil {
		o.mu.Lock()
		o.err = err
		o.mu.Unlock()
	}
}

// play runs the proxies of the fleet, and then counts what its monitors do.
func (f *fleet) play(t *testing.T, seed uint64) *tally {
	t.Helper()
	q, o := &queue{}, &outcome{missed: map[string][]time.Time{}}
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t)
		links := ns.Links(t)
		var proxies sync.WaitGroup
		began := time.Now()
		for i := range f.proxies {
			s, err := scheduler.New(scheduler.Config{Links: links, MonitorQueue: "overdue-monitor", Store: q})
			if err != nil {
				t.Fatal(err)
			}
			proxies.Go(func() { f.proxy(s, i, rand.New(rand.NewPCG(seed, uint64(i))), began, o) })
		}
		time.Sleep(warmUp)
		q.mu.Lock()
		q.counts = true
		q.mu.Unlock()
		time.Sleep(f.lasts)
		q.mu.Lock()
		q.counts = false
		q.mu.Unlock()
		proxies.Wait()
	})
	if q.err != nil || o.err != nil {
		t.Fatalf("companions: %v, %v", q.err, o.err)
	}
	return f.count(q, o, rand.New(rand.NewPCG(seed, 1<<32)))
}

// proxy sends its share of the messages to one entity, as package proxy asks for their companions.
func (f *fleet) proxy(s *scheduler.Scheduler, i int, rng *rand.Rand, began time.Time, o *outcome) {
	defer func() { _ = s.Close(context.Background()) }() // it has no links
	entity := fmt.Sprintf("queue-%03d", i%f.entities)
	pause := float64(time.Second) * float64(f.proxies) / f.rate
	lives := []time.Duration{f.deadline}
	for n := 0; time.Since(began) < warmUp+f.lasts; n++ {
		time.Sleep(time.Duration(rng.ExpFloat64() * pause))
		now := scheduler.Instant{Time: time.Now(), Measured: true, Uncertainty: uncertainty}
		deadline := now.Time.Add(f.deadline)
		s.Start(scheduler.Companion{
			Entity: entity, Findable: s.Pays(entity, lives, now),
			References: []scheduler.Reference{{
				MessageID: fmt.Sprintf("%08d-%027d", i, n), Sent: now.Time, From: now.Time.Add(-now.Uncertainty), Until: now.StampedBy(),
				Deadline: deadline, Within: f.deadline, Stated: "ttl",
			}},
		}, o)
		if time.Since(began) < warmUp {
			continue
		}
		o.mu.Lock()
		o.messages++
		if rng.Float64() < f.missed {
			o.missed[entity] = append(o.missed[entity], deadline)
		}
		o.mu.Unlock()
	}
}

// What `overdue bench` has counted, test/bench/results.json: a check is one peek, and to a nudge
// there are two peeks and, since live messages wait as well, one release.
const (
	peeksPerCheck    = 1
	peeksPerNudge    = 2
	releasesPerNudge = 1
)

// count hands the companions to monitors, any of which may get each, and adds up their operations.
func (f *fleet) count(q *queue, o *outcome, rng *rand.Rand) *tally {
	t := &tally{operations: map[string]float64{}}
	perMonitor := make([]float64, f.monitors)
	perQueue := make([]float64, f.monitorQueues)
	queues := monitorqueue.Of("overdue-monitor", f.monitorQueues)
	type pass struct {
		monitor int
		entity  string
		at      int64
	}
	passes := map[pass]bool{}
	nudges := map[pass]bool{}
	bytes := 0
	for i := range q.all {
		d := &q.all[i]
		m := rng.IntN(f.monitors)
		add := func(operation string, n float64) {
			t.operations[operation] += n
			perMonitor[m] += n
		}
		t.operations["schedule"]++
		add("receive", 1)
		add("complete", 1)
		if p := (pass{m, d.entity, d.at.UnixNano()}); !passes[p] {
			passes[p] = true
			add("peek", peeksPerCheck)
		}
		for _, at := range o.missed[d.entity] {
			_, named := d.deadlines[at.UnixNano()]
			inSlot := d.slot && at.After(d.start) && !at.After(d.end)
			if n := (pass{m, d.entity, at.UnixNano()}); (named || inSlot) && !nudges[n] {
				nudges[n] = true
				add("nudge", 1)
				add("peek", peeksPerNudge)
				add("release", releasesPerNudge)
			}
		}
		if d.slot {
			t.slots++
		} else {
			t.each++
		}
		perQueue[queues.Index(d.entity)]++
		bytes += d.bytes
	}
	var all float64
	for m := range perMonitor {
		all += perMonitor[m]
		t.busiestMonitor = max(t.busiestMonitor, perMonitor[m])
	}
	t.busiestMonitor /= all
	for _, n := range perQueue {
		t.fullestQueue = max(t.fullestQueue, n/float64(len(q.all)))
	}
	t.bodyBytes = float64(bytes) / float64(len(q.all))
	seconds := f.lasts.Seconds()
	for name := range t.operations {
		t.operations[name] /= seconds
	}
	t.messages, t.transfers = float64(o.messages)/seconds, float64(q.transfers)/seconds
	t.slots, t.each = t.slots/seconds, t.each/seconds
	return t
}
