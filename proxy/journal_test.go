// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/scheduler/journal"
)

// keepJournal gives the proxy a journal, which runs until the end of the test.
func (sc *scene) keepJournal(directory string) *journal.Journal {
	sc.Helper()
	j, err := journal.Open(journal.Config{Scheduler: sc.scheduler, Directory: directory, Namespace: "overdue.test"})
	if err != nil {
		sc.Fatal(err)
	}
	sc.proxy.cfg.Journal = j
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	sc.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			sc.Errorf("Run = %v, want nil", err)
		}
		if err := j.Close(context.Background()); err != nil {
			sc.Errorf("Close = %v, want nil", err)
		}
	})
	return j
}

// down makes the monitor queue refuse what comes, until up.
func (sc *scene) down() (up func()) {
	return sc.ns.Broker.Default().Inject(broker.Fault{Entity: monitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
}

func TestSendsGoThroughWhileTheMonitorQueueIsDown(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		j := sc.keepJournal(directory)
		sc.warm()
		up := sc.down()
		for i := range 20 {
			began := time.Now()
			sc.want(sc.post("/orders/messages", "hello", "overdue-within", "10m", "BrokerProperties", fmt.Sprintf(`{"MessageId":"m%d"}`, i)), http.StatusCreated, "")
			if took := time.Since(began); i > 0 && took > 0 {
				t.Fatalf("send %d took %v with the monitor queue known to be down, want no wait", i, took)
			}
		}
		if st := j.Status(); st.Companions == 0 {
			t.Errorf("status %+v, want the companions in the journal", st)
		}
		if held := len(sc.messages("orders")); held != 21 {
			t.Errorf("orders holds %d messages, want 21, none of them twice", held)
		}
		up()
		time.Sleep(time.Minute)
		seen := map[string]bool{}
		for _, r := range sc.references() {
			seen[r.MessageID] = true
		}
		for i := range 20 {
			if !seen[fmt.Sprint("m", i)] {
				t.Errorf("m%d was acknowledged and has no companion a minute after the outage", i)
			}
		}
		if got := sc.sends("orders", resultMonitored); got != 21 {
			t.Errorf("%v monitored sends are counted, want 21", got)
		}
	})
}

// Through the AMQP endpoint: single sends, batches and what is scheduled by request.
func TestAnAppAtTheAMQPDoorDoesNotNoticeThatTheMonitorQueueIsDown(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t)
		j := sc.keepJournal(directory)
		sender := sc.sender("orders")
		ttl := time.Hour
		m := func(id string) *azservicebus.Message {
			return &azservicebus.Message{MessageID: &id, TimeToLive: &ttl, Body: []byte("body")}
		}
		sc.must(sender.SendMessage(t.Context(), m("before"), nil))
		up := sc.down()
		sc.must(sender.SendMessage(t.Context(), m("first"), nil))
		began := time.Now()
		sc.must(sender.SendMessage(t.Context(), m("single"), nil))
		batch, err := sender.NewMessageBatch(t.Context(), nil)
		sc.must(err)
		sc.must(batch.AddMessage(m("batch-1"), nil))
		sc.must(batch.AddMessage(m("batch-2"), nil))
		sc.must(sender.SendMessageBatch(t.Context(), batch, nil))
		_, err = sender.ScheduleMessages(t.Context(), []*azservicebus.Message{m("scheduled")}, time.Now().Add(time.Minute), nil)
		sc.must(err)
		if took := time.Since(began); took > 0 {
			t.Errorf("three sends took %v with the monitor queue known to be down, want no wait", took)
		}
		if st := j.Status(); st.Down == nil || st.Companions == 0 {
			t.Errorf("status %+v, want the monitor queue down and companions in the journal", st)
		}
		up()
		time.Sleep(30 * time.Second)
		seen := map[string]bool{}
		for _, r := range sc.references() {
			seen[r.MessageID] = true
		}
		for _, id := range []string{"before", "first", "single", "batch-1", "batch-2", "scheduled"} {
			if !seen[id] {
				t.Errorf("%s was acknowledged and has no companion", id)
			}
		}
	})
}
