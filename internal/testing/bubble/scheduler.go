// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// WithScheduler runs act on fake time, with a scheduler on a namespace that has a monitor queue.
func WithScheduler(t *testing.T, act func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler), configure ...func(*broker.Config, *scheduler.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := scheduler.Config{MonitorQueue: MonitorQueue}
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Queues = []broker.QueueConfig{{Name: MonitorQueue}}
			for _, f := range configure {
				f(c, &cfg)
			}
		})
		cfg.Links = ns.Links(t)
		s, err := scheduler.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) }) // some tests have closed it
		act(t, ns, s)
	})
}

// OnMonitorQueue are the messages of the monitor queue.
func OnMonitorQueue(t *testing.T, ns *brokertest.Namespace) []queue.View {
	t.Helper()
	q, ok := ns.Broker.Queue(MonitorQueue)
	if !ok {
		t.Fatal("there is no monitor queue")
	}
	return q.Peek(nil, 0, 10_000)
}

// MessageIDs are the message-ids that the companions on the monitor queue name, in the order in
// which the broker accepted them.
func MessageIDs(t *testing.T, ns *brokertest.Namespace) (all []string) {
	t.Helper()
	for _, v := range OnMonitorQueue(t, ns) {
		for _, r := range ParseCompanion(t, v).References {
			all = append(all, r.MessageID)
		}
	}
	return all
}

// ParseCompanion reads a companion as the broker holds it.
func ParseCompanion(t *testing.T, v queue.View) scheduler.Companion {
	t.Helper()
	m, err := amqp.ParseMessage(v.Body)
	if err != nil {
		t.Fatal(err)
	}
	for body, err := range amqp.DataSections(m.Body) {
		if err != nil {
			t.Fatal(err)
		}
		c, err := scheduler.ParseCompanion(body)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Fatal("a companion has no body")
	return scheduler.Companion{}
}

// CompanionOf is a companion for one message of the work queue.
func CompanionOf(id string, deadline time.Time) scheduler.Companion {
	return scheduler.Companion{Entity: WorkQueue, References: []scheduler.Reference{{MessageID: id, Sent: time.Now(), Deadline: deadline, Stated: "ttl"}}}
}
