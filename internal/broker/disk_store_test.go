// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
	"overdue/internal/testing/brokertest"
)

// onDirectory makes a broker with one queue, in a directory.
func onDirectory(t *testing.T, q broker.QueueConfig) (ns *brokertest.Namespace, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "overdue")
	disk, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return brokertest.New(t, func(c *broker.Config) {
		c.Disk = disk
		c.Queues = []broker.QueueConfig{q}
	}), dir
}

// afterKill is the first queue of the directory as another process finds it.
func afterKill(t *testing.T, dir string, cfg queue.Config) *queue.Queue {
	t.Helper()
	left := filepath.Join(t.TempDir(), "left")
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	again, err := store.Open(left)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Log = again.Queue(1)
	q := queue.New(cfg)
	t.Cleanup(q.Close)
	last, err := again.Load(1, func(c *queue.Change) error { q.Restore(c); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Resume(last); err != nil {
		t.Fatal(err)
	}
	return q
}

// A client hears that its messages are stored. Then the directory is taken as it lies there, which
// is what kill -9 leaves, and read by another process.
func TestWhatAClientHasHeardOfIsInTheDirectory(t *testing.T) {
	ns, dir := onDirectory(t, broker.QueueConfig{Name: "first"})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := ns.Client(t)
	sender, err := client.NewSender("first", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		id := fmt.Sprint("m", i)
		if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, Body: []byte(id)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	receiver, err := client.NewReceiverForQueue("first", nil)
	if err != nil {
		t.Fatal(err)
	}
	var ms []*azservicebus.ReceivedMessage
	for len(ms) < 4 {
		more, err := receiver.ReceiveMessages(ctx, 4-len(ms), nil)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, more...)
	}
	for i, settle := range []func(*azservicebus.ReceivedMessage) error{
		func(m *azservicebus.ReceivedMessage) error { return receiver.CompleteMessage(ctx, m, nil) },
		func(m *azservicebus.ReceivedMessage) error { return receiver.DeadLetterMessage(ctx, m, nil) },
		func(m *azservicebus.ReceivedMessage) error { return receiver.DeferMessage(ctx, m, nil) },
	} {
		if err := settle(ms[i]); err != nil {
			t.Fatal(err)
		}
	}

	q := afterKill(t, dir, queue.Config{})
	got := map[string]string{}
	for place, part := range map[string]*queue.Queue{"queue": q, "dead letters": q.DeadLetterQueue()} {
		for _, v := range brokertest.Seen(part.Peek(nil, 0, 10)) {
			got[v.MessageID] = fmt.Sprint(place, " ", v.State, " ", v.DeliveryCount)
		}
	}
	want := map[string]string{
		"m1": "dead letters 0 0",
		"m2": "queue 1 1", // deferred: that counts
		"m3": "queue 0 1", // it was locked, and is one delivery older
		"m4": "queue 0 0",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after kill -9 there is %v, want %v", got, want)
	}
	if next, err := q.Send(queue.Message{}); err != nil || next <= 5 {
		t.Errorf("the next message has number %d, %v, want one that no client has seen", next, err)
	}
}

func TestStatesOfSessionsAndMessageIDsOutliveTheProcess(t *testing.T) {
	ns, dir := onDirectory(t, broker.QueueConfig{
		Name:                       "first",
		RequiresSession:            true,
		RequiresDuplicateDetection: true,
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := ns.Client(t)
	sender, err := client.NewSender("first", nil)
	if err != nil {
		t.Fatal(err)
	}
	id, session := "order-1", "s"
	if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, SessionID: &session}, nil); err != nil {
		t.Fatal(err)
	}
	receiver, err := client.AcceptSessionForQueue(ctx, "first", session, nil)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.CompleteMessage(ctx, ms[0], nil); err != nil {
		t.Fatal(err)
	}
	if err := receiver.SetSessionState(ctx, []byte("after order-1"), nil); err != nil {
		t.Fatal(err)
	}
	q := afterKill(t, dir, queue.Config{RequiresSession: true, RequiresDuplicateDetection: true})
	if _, err := q.Send(queue.Message{MessageID: id, SessionID: session, HasSession: true}); err != nil {
		t.Fatal(err)
	}
	if n := q.Counts(); n.Active != 0 || n.DuplicateHistory != 1 {
		t.Errorf("after kill -9 a duplicate leaves %+v, want no message and one id", n)
	}
	if _, err := q.Sessions().Accept(session); err != nil {
		t.Fatal(err)
	}
	if state, err := q.Sessions().State(session); err != nil || string(state) != "after order-1" {
		t.Errorf("after kill -9 the state of the session is %q, %v", state, err)
	}
}
