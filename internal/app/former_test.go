// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"overdue/internal/config"
	"overdue/internal/monitorqueue"
	"overdue/internal/testing/brokertest"
)

// Companions that were written with more monitor queues are still received, and what only has the
// name of a monitor queue is left alone. Looking creates nothing.
func TestFormerMonitorQueuesAreEmptied(t *testing.T) {
	const first = "companions"
	queues := monitorqueue.Of(first, 2)
	if queues.For("payments") == first {
		t.Fatal("the companions of payments are on the first of two queues; the test needs another name")
	}
	b := startRole(t, config.RoleBroker, "broker: {autoCreate: true, monitorQueue: false, queues: [{name: payments, deadLetteringOnMessageExpiration: true}, "+
		"{name: companions}, {name: companions.2}, {name: others}, {name: others.2}]}\n")
	space := "namespace: " + b.OwnConnectionString() + "\n"
	post := func(p *Process, queue, properties string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.RestAddr()+"/"+queue+"/messages", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("BrokerProperties", properties)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	sender := startRole(t, config.RoleProxy, space+"monitorQueue: companions\nmonitorQueues: 2\n")
	eventually(t, "the message is sent", func() bool { return post(sender, "payments", `{"TimeToLive":3600}`) == http.StatusCreated })
	count := func(name string) int {
		q, ok := b.broker.Queue(name)
		if !ok {
			t.Fatalf("there is no queue %s", name)
		}
		return len(brokertest.Seen(q.Peek(nil, 0, 10)))
	}
	eventually(t, "its companion is on the second queue", func() bool { return count("companions.2") == 1 })
	post(sender, "others.2", "{}")
	for _, queue := range []string{first, "others"} {
		startRole(t, config.RoleMonitor, space+"monitorQueue: "+queue+"\n")
	}
	b.broker.SetClockOffset(2 * time.Hour)
	dead := func() int {
		q, _ := b.broker.Queue("payments")
		return len(brokertest.Seen(q.DeadLetterQueue().Peek(nil, 0, 10)))
	}
	eventually(t, "the message is a dead letter", func() bool { return dead() == 1 && count("companions.2") == 0 })
	if n := count("others.2"); n != 1 {
		t.Errorf("%d messages are left in the queue of an app, want 1", n)
	}
	if _, ok := b.broker.Queue("companions.3"); ok {
		t.Error("a monitor has created a queue by looking for it")
	}
}
