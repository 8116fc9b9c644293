// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/freeport"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/program"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/redistest"
)

// Proxies and monitors, each a process of its own, become three of each, and then one of each that
// was not there at first. Meanwhile apps send, receive and settle through the endpoints. An
// acknowledged message waits, was received, or is a dead letter that was notified of. Nothing is
// early, and a message that nobody received was not delivered. Where processes are stopped and not
// killed nothing is notified twice.
//
// Like TestMonitorIsKilledAndRestarted it runs on the real clock.
func TestRollingRestarts(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel()
	binary := program.Build(t)
	for name, c := range map[string]struct {
		signal     syscall.Signal
		companions string
		redis      func(*testing.T) (address string, faults [3]func())
	}{
		"stopped":                        {syscall.SIGTERM, "each", nil},
		"stopped, with Redis that fails": {syscall.SIGTERM, "each", failingRedis},
		// Slots of two proxies may stand for one message, and then two monitors notify of it,
		// with one id: see docs/internals/guarantees.md.
		"killed, with Redis that fails": {syscall.SIGKILL, "slot", failingRedis},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			h := &hooktest.Hook{}
			sink := httptest.NewServer(h)
			t.Cleanup(sink.Close)
			r := &roll{processes: newProcesses(t, binary, sink.URL), Hook: h, signal: c.signal, settings: []string{"OVERDUE_COMPANIONS=" + c.companions}}
			lock := "1m" // which no machine is too busy for; what is stopped hands back what it holds
			if c.signal == syscall.SIGKILL {
				lock = "5s"
			}
			faults := [3]func(){func() {}, func() {}, func() {}}
			if c.redis != nil {
				var address string
				address, faults = c.redis(t)
				r.settings = append(r.settings, "OVERDUE_REDIS="+address)
			}
			r.start("broker", "OVERDUE_BROKER_QUEUES=[{name: orders, deadLetteringOnMessageExpiration: true}, "+
				"{name: served, deadLetteringOnMessageExpiration: true, lockDuration: 5s, maxDeliveryCount: 2000}, "+
				"{name: companions, lockDuration: "+lock+", maxDeliveryCount: 2000}]")
			r.endpoints = newBalancer(t)
			r.grow(1)
			stop := r.load()
			r.traffic(200)
			r.grow(2)
			more := r.apps(3) // which come to the new endpoints, too
			for _, fault := range faults[:2] {
				fault()
				r.traffic(300)
				r.shrink()
			}
			faults[2]()
			r.traffic(300)
			more()
			stop()
			r.check()
		})
	}
}

const (
	served    = "served" // a queue whose messages somebody receives
	soon      = 700 * time.Millisecond
	rollKills = 2 // of monitors
)

// A roll is one of TestRollingRestarts.
type roll struct {
	*processes
	*hooktest.Hook
	signal    syscall.Signal
	settings  []string
	endpoints *balancer
	pairs     []pairOfRoles // that run, the eldest first
	named     int           // apps so far

	mu        sync.Mutex
	sent      map[string]map[string]bool // by queue: ids of what was acknowledged
	completed map[int64]string           // sequence numbers of what was settled in served, and the ids
	received  map[string]bool            // ids
	count     atomic.Int64               // acknowledged, all queues
}

type pairOfRoles struct {
	proxy, monitor *running
	endpoint       string
}

// grow starts n proxies and as many monitors.
func (r *roll) grow(n int) {
	r.Helper()
	var added []pairOfRoles
	for range n {
		p := pairOfRoles{endpoint: freeport.Address(r.T)}
		p.proxy = r.begin("proxy", append(slices.Clone(r.settings), "OVERDUE_LISTEN_AMQP="+p.endpoint, "OVERDUE_LISTEN_HTTP=127.0.0.1:0")...)
		p.monitor = r.begin("monitor", r.settings...)
		added = append(added, p)
	}
	for _, p := range added {
		r.ready(p.proxy)
		r.ready(p.monitor)
		r.endpoints.add(p.endpoint)
	}
	r.pairs = append(r.pairs, added...)
}

// shrink ends the eldest proxy and the eldest monitor.
func (r *roll) shrink() {
	r.Helper()
	p := r.pairs[0]
	r.pairs = r.pairs[1:]
	r.endpoints.remove(p.endpoint)
	r.end(p.monitor, r.signal)
	r.end(p.proxy, r.signal)
}

// traffic waits until n more messages were acknowledged.
func (r *roll) traffic(n int64) {
	r.Helper()
	want := r.count.Load() + n
	for end := time.Now().Add(2 * time.Minute); r.count.Load() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("%d messages were acknowledged within a minute, want %d", r.count.Load()-want+n, n)
		}
	}
}

// load has apps send, and receive from served, until stop is called.
func (r *roll) load() (stop func()) {
	r.sent = map[string]map[string]bool{workQueue: {}, served: {}}
	r.completed, r.received = map[int64]string{}, map[string]bool{}
	quiet := r.apps(2)
	var consumer sync.WaitGroup
	consuming, enough := context.WithCancel(r.Context())
	consumer.Go(func() { r.consume(consuming) })
	return func() {
		r.Helper()
		quiet()
		// The remaining messages are received, once their locks have lapsed.
		for end := time.Now().Add(2 * time.Minute); len(r.peek(served, 0)) > 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				r.Error("the queue that is served is not empty after a minute")
				break
			}
		}
		enough()
		consumer.Wait()
	}
}

// apps has n apps send until stop is called.
func (r *roll) apps(n int) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var senders sync.WaitGroup
	for range n {
		r.named++
		app := r.named
		senders.Go(func() { r.app(ctx, app) })
	}
	return func() {
		cancel()
		senders.Wait()
	}
}

// client is that of an app, which knows one address for all proxies.
func (r *roll) client() *azservicebus.Client {
	c, err := azservicebus.NewClientFromConnectionString(connectionString(r.endpoints.addr), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 20, RetryDelay: 20 * time.Millisecond, MaxRetryDelay: 200 * time.Millisecond},
	})
	if err != nil {
		r.Error(err)
	}
	return c
}

// app sends: every fourth message goes to served, early enough for its consumer, and every tenth of
// the others has a long time to live.
func (r *roll) app(ctx context.Context, app int) {
	c := r.client()
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // its endpoint may be gone
	senders := map[string]*azservicebus.Sender{}
	for _, q := range []string{workQueue, served} {
		s, err := c.NewSender(q, nil)
		if err != nil {
			r.Error(err)
			return
		}
		senders[q] = s
	}
	for i := 0; ctx.Err() == nil; i++ {
		q, life := workQueue, soon
		switch {
		case i%4 == 0:
			q, life = served, time.Hour
		case i%10 == 1:
			life = time.Hour
		}
		id := fmt.Sprintf("%s-%d-%d", q, app, i)
		if err := senders[q].SendMessage(ctx, &azservicebus.Message{MessageID: &id, Body: []byte("body of " + id), TimeToLive: &life}, nil); err != nil {
			continue // it is not acknowledged
		}
		r.mu.Lock()
		r.sent[q][id] = true
		r.mu.Unlock()
		r.count.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
}

// consume receives and completes what is sent to served.
func (r *roll) consume(ctx context.Context) {
	c := r.client()
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	from, err := c.NewReceiverForQueue(served, nil)
	if err != nil {
		r.Error(err)
		return
	}
	for ctx.Err() == nil {
		all, err := from.ReceiveMessages(ctx, 20, nil)
		if err != nil {
			continue // an endpoint is gone, or it is over
		}
		for _, m := range all {
			// Without a bound the SDK would try for a minute to say over a link that is gone
			// what no other can say.
			settling, cancel := context.WithTimeout(ctx, time.Second)
			err := from.CompleteMessage(settling, m, nil)
			cancel()
			r.mu.Lock()
			r.received[m.MessageID] = true
			if err == nil {
				r.completed[*m.SequenceNumber] = m.MessageID
			}
			r.mu.Unlock()
			if err != nil {
				break // the others came over the same link, and come again when their locks lapse
			}
		}
	}
}

// check waits until all deadlines have been seen to, and checks what became of every message.
func (r *roll) check() {
	r.Helper()
	for end := time.Now().Add(2 * time.Minute); r.busy(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatal("companions are not done with after two minutes")
		}
	}
	events := map[string]map[int64]hooktest.Event{workQueue: {}, served: {}}
	ids, subjects := map[string]int{}, map[string]bool{}
	for _, e := range r.Events() {
		if ids[e.ID]++; ids[e.ID] > 1 && r.signal != syscall.SIGKILL {
			r.Errorf("%s was notified %d times, want once", e.Subject, ids[e.ID])
		}
		if was, ok := events[e.Data.Entity][e.Data.SequenceNumber]; ok && was.ID != e.ID {
			r.Errorf("%s was notified as %s and as %s", e.Subject, was.ID, e.ID)
		}
		events[e.Data.Entity][e.Data.SequenceNumber], subjects[e.Subject] = e, true
		if e.Data.Entity == served && r.completed[e.Data.SequenceNumber] != "" {
			r.Errorf("%s was completed, and notified of", e.Subject)
		}
	}
	touched := 0
	for _, q := range []string{workQueue, served} {
		found := map[string]bool{}
		for _, m := range r.peek(q, azservicebus.SubQueueDeadLetter) {
			found[m.MessageID] = true
			e, notified := events[q][*m.SequenceNumber]
			delete(events[q], *m.SequenceNumber)
			switch deadline := m.EnqueuedTime.Add(*m.TimeToLive); {
			case !notified && r.signal == syscall.SIGKILL && (subjects[m.MessageID] || !r.sent[q][m.MessageID]):
				// A killed proxy has not acknowledged it, and the SDK has sent it again.
			case !notified:
				r.Errorf("%s is a dead letter, and nobody was notified", m.MessageID)
			case e.Data.DeadLetteredTime.Before(deadline):
				r.Errorf("%s was dead-lettered %v early", m.MessageID, deadline.Sub(e.Data.DeadLetteredTime))
			}
			if *m.DeadLetterReason != "TTLExpiredException" || string(m.Body) != "body of "+m.MessageID {
				r.Errorf("%s: %q, dead-lettered for %q", m.MessageID, m.Body, *m.DeadLetterReason)
			}
			if q == workQueue {
				touched += int(m.DeliveryCount) - 1 // the SDK counts one more than the broker
			}
		}
		for number, e := range events[q] {
			r.Errorf("%s, number %d, was notified of and is no dead letter", e.Subject, number)
		}
		for _, m := range r.peek(q, 0) {
			found[m.MessageID] = true
			touched += int(m.DeliveryCount) - 1
			if *m.TimeToLive != time.Hour {
				r.Errorf("%s waits past its deadline", m.MessageID)
			}
		}
		for id := range r.sent[q] {
			if !found[id] && (q != served || !r.received[id]) {
				r.Errorf("%s was acknowledged, and is lost", id)
			}
		}
		r.Logf("%s: %d acknowledged", q, len(r.sent[q]))
	}
	most := 0
	if r.signal == syscall.SIGKILL {
		most = rollKills // each may cost what the monitor holds at that moment one delivery: docs/internals/guarantees.md
	}
	if touched > most {
		r.Errorf("messages that nobody received were delivered %d times, want %d at most", touched, most)
	}
	r.Logf("notified %d, settled %d", len(r.Events()), len(r.completed))
}

// busy reports whether deadlines that are near are not seen to yet.
func (r *roll) busy() bool {
	return slices.ContainsFunc(r.peek("companions", 0), func(m *azservicebus.ReceivedMessage) bool {
		return m.State != azservicebus.MessageStateScheduled || time.Until(*m.ScheduledEnqueueTime) < 10*time.Minute
	})
}

// failingRedis freezes until its replica takes over, which then is flushed, and killed.
func failingRedis(t *testing.T) (address string, faults [3]func()) {
	master := redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	sentinel := redistest.Sentinel(t, master)
	return "redis+sentinel://" + sentinel.Addr + "/mymaster", [3]func(){
		master.Freeze,
		func() { _, _ = replica.Do("FLUSHALL") }, // which it refuses as long as it is a replica
		func() { master.Thaw(); replica.Kill() },
	}
}
