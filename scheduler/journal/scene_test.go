// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

const monitorQueue = bubble.MonitorQueue

var (
	setup, companions, ids = bubble.WithScheduler, bubble.OnMonitorQueue, bubble.MessageIDs
	parse, one             = bubble.ParseCompanion, bubble.CompanionOf
)

// news are the events of a journal.
type news struct {
	mu     sync.Mutex
	events []string
	errs   []error
}

func (n *news) changed(event string, err error, _ journal.Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events, n.errs = append(n.events, event), append(n.errs, err)
}

// count is how many events begin so.
func (n *news) count(prefix string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := 0
	for _, e := range n.events {
		if strings.HasPrefix(e, prefix) {
			c++
		}
	}
	return c
}

// start opens a journal for s and runs it until stop or the end of the test.
func start(t *testing.T, s *scheduler.Scheduler, directory string, change ...func(*journal.Config)) (j *journal.Journal, stop func()) {
	t.Helper()
	cfg := journal.Config{Scheduler: s, Directory: directory, Namespace: "contoso"}
	for _, f := range change {
		f(&cfg)
	}
	j, err := journal.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if err := j.Close(context.Background()); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return j, stop
}

func schedule(t *testing.T, j *journal.Journal, c scheduler.Companion) {
	t.Helper()
	if err := j.Begin(c)(t.Context()); err != nil {
		t.Fatalf("companion = %v, want it accepted or kept", err)
	}
}

// Causes that keep a monitor queue from taking companions, each with its end.
var outages = map[string]func(*testing.T, *brokertest.Namespace) (end func()){
	"the network is cut": func(_ *testing.T, ns *brokertest.Namespace) func() {
		ns.Net.Refuse(true)
		ns.Net.Cut()
		return func() { ns.Net.Refuse(false) }
	},
	"the network is silent": func(_ *testing.T, ns *brokertest.Namespace) func() {
		ns.Net.Stall(pipenet.Both)
		return func() { ns.Net.Resume(pipenet.Both) }
	},
	"the queue is full": func(_ *testing.T, ns *brokertest.Namespace) func() {
		return ns.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
	},
	"the namespace throttles": func(_ *testing.T, ns *brokertest.Namespace) func() {
		return ns.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.ServerBusy()})
	},
	"the queue is deleted": func(t *testing.T, ns *brokertest.Namespace) func() {
		if err := ns.Broker.Default().DeleteQueue(monitorQueue); err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := ns.Broker.Default().CreateQueue(broker.QueueConfig{Name: monitorQueue}); err != nil {
				t.Error(err)
			}
		}
	},
}
