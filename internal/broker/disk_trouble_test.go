// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// troubles are what a disk can say, with what clients get.
var troubles = map[error]string{
	queue.ErrNoRoom:    "the disk of the broker is full",
	queue.ErrNotStored: "the broker cannot write to its disk",
}

// hasty is a client that tries once.
func hasty(t *testing.T, ns *brokertest.Namespace) *azservicebus.Client {
	options := ns.ClientOptions()
	options.RetryOptions.MaxRetries = -1
	return brokertest.NewClient(t, ns.ConnectionString(), options)
}

// prompt limits how long do may try again.
func prompt(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return do(ctx)
}

// goOn puts on disk at once what comes from now on, until stop.
func goOn(d *brokertest.SlowDisk) (stop func()) {
	over, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
				d.Sync()
			}
		}
	}()
	return func() { close(over); <-stopped }
}

func TestTroubleWithTheDiskRefusesChangesBeforeTheyAreMadeAndNoReads(t *testing.T) {
	for cause, text := range troubles {
		t.Run(text, func(t *testing.T) {
			configure := func(c *broker.Config) {
				c.Queues = append(c.Queues, broker.QueueConfig{Name: "sessions", RequiresSession: true})
			}
			onSlowDisk(t, configure, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
				defer goOn(d)()
				refuseChanges(t, ns, d, cause, text)
			})
		})
	}
}

func refuseChanges(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk, cause error, text string) {
	client := hasty(t, ns)
	sender, err := client.NewSender("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	message := &azservicebus.Message{Body: []byte("m")}
	for range 5 {
		must("SendMessage", prompt(func(ctx context.Context) error { return sender.SendMessage(ctx, message, nil) }))
	}
	var scheduled []int64
	must("ScheduleMessages", prompt(func(ctx context.Context) (err error) {
		scheduled, err = sender.ScheduleMessages(ctx, []*azservicebus.Message{message}, time.Now().Add(time.Hour), nil)
		return err
	}))
	var locked []*azservicebus.ReceivedMessage
	receive := func(ctx context.Context) error {
		ms, err := receiver.ReceiveMessages(ctx, 1, nil)
		locked = append(locked, ms...)
		return err
	}
	must("ReceiveMessages", prompt(receive))
	must("DeferMessage", prompt(func(ctx context.Context) error { return receiver.DeferMessage(ctx, locked[0], nil) }))
	deferred := *locked[0].SequenceNumber
	for range 3 {
		must("ReceiveMessages", prompt(receive))
	}
	var session *azservicebus.SessionReceiver
	must("AcceptSessionForQueue", prompt(func(ctx context.Context) (err error) {
		session, err = client.AcceptSessionForQueue(ctx, "sessions", "s", nil)
		return err
	}))
	state := func(text string) func(context.Context) error {
		return func(ctx context.Context) error { return session.SetSessionState(ctx, []byte(text), nil) }
	}
	must("SetSessionState", prompt(state("before")))

	changes := map[string]func(context.Context) error{
		"SendMessage":             func(ctx context.Context) error { return sender.SendMessage(ctx, message, nil) },
		"CancelScheduledMessages": func(ctx context.Context) error { return sender.CancelScheduledMessages(ctx, scheduled, nil) },
		"AbandonMessage":          func(ctx context.Context) error { return receiver.AbandonMessage(ctx, locked[2], nil) },
		"CompleteMessage":         func(ctx context.Context) error { return receiver.CompleteMessage(ctx, locked[1], nil) },
		"DeadLetterMessage":       func(ctx context.Context) error { return receiver.DeadLetterMessage(ctx, locked[3], nil) },
		"SetSessionState":         state("after"),
		"ScheduleMessages": func(ctx context.Context) error {
			_, err := sender.ScheduleMessages(ctx, []*azservicebus.Message{message}, time.Now().Add(time.Hour), nil)
			return err
		},
		"ReceiveDeferredMessages for deletion": func(ctx context.Context) error {
			r, err := client.NewReceiverForQueue("q", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
			if err == nil {
				_, err = r.ReceiveDeferredMessages(ctx, []int64{deferred}, nil)
			}
			return err
		},
	}
	q, _ := ns.Broker.Queue("q")
	before := brokertest.Seen(q.Peek(nil, 0, 10))
	d.Steps()
	d.Fail(cause)
	for what, do := range changes {
		if err := prompt(do); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s = %v, want %s", what, err, text)
		}
	}
	if alone, held := d.Steps(); alone+held > 0 {
		t.Errorf("what was refused has taken %d steps", alone+held)
	}
	after := brokertest.Seen(q.Peek(nil, 0, 10))
	if !slices.EqualFunc(before, after, func(a, b queue.View) bool {
		return a.SequenceNumber == b.SequenceNumber && a.State == b.State && a.Locked == b.Locked
	}) {
		t.Errorf("what was refused has changed the queue from %v to %v", before, after)
	}
	must("ReceiveMessages", prompt(receive))
	must("PeekMessages", prompt(func(ctx context.Context) error {
		ms, err := receiver.PeekMessages(ctx, 10, nil)
		if err == nil && len(ms) != len(after) {
			err = errors.New("not all messages")
		}
		return err
	}))
	must("RenewMessageLock", prompt(func(ctx context.Context) error { return receiver.RenewMessageLock(ctx, locked[1], nil) }))
	must("GetSessionState", prompt(func(ctx context.Context) error {
		got, err := session.GetSessionState(ctx, nil)
		if err == nil && string(got) != "before" {
			err = errors.New("another state: " + string(got))
		}
		return err
	}))
	d.Fail(nil)
	for _, settlement := range []string{"CompleteMessage", "AbandonMessage", "DeadLetterMessage"} {
		delete(changes, settlement) // the SDK takes what was rejected for settled, and does not try again
	}
	for what, do := range changes {
		must(what+" when the disk has recovered", prompt(do))
	}
}

// Each delivery leaves a mark that waits for the disk, and so does each lapsed lock.
func TestReadsOfAFullDiskEndWhenTooMuchWaitsForIt(t *testing.T) {
	const backlog = 20
	often := func(c *broker.Config) { c.Queues[0].MaxDeliveryCount = 3 * backlog }
	onSlowDisk(t, often, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		q, _ := ns.Broker.Queue("q")
		if _, err := q.Send(queue.Message{Body: []byte("\x00\x53\x75\xa0\x01m")}); err != nil {
			t.Fatal(err)
		}
		d.Sync()
		d.MaxBacklog = backlog
		d.Fail(queue.ErrNoRoom)
		d.Steps()
		receiver, err := hasty(t, ns).NewReceiverForQueue("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		var failure error
		for range 3 * backlog {
			failure = prompt(func(ctx context.Context) error {
				_, err := receiver.ReceiveMessages(ctx, 1, nil)
				return err
			})
			if failure != nil {
				break
			}
			time.Sleep(q.Config().LockDuration) // fake: it lapses
		}
		if failure == nil || !strings.Contains(failure.Error(), troubles[queue.ErrNoRoom]) {
			t.Errorf("at last a receive ends with %v, want the error of a quota", failure)
		}
		if alone, held := d.Steps(); alone+held < backlog || alone+held > backlog+1 {
			t.Errorf("%d steps wait for room, want %d and one that a lapsed lock has added", alone+held, backlog)
		}
		peeked, err := receiver.PeekMessages(t.Context(), 10, nil)
		if err != nil || len(peeked) != 1 {
			t.Errorf("PeekMessages = %d messages, %v, want the one", len(peeked), err)
		}
		d.Fail(nil)
		defer goOn(d)()
		if ms, err := receiver.ReceiveMessages(t.Context(), 1, nil); err != nil || len(ms) != 1 {
			t.Errorf("when there is room, ReceiveMessages = %d messages, %v, want one", len(ms), err)
		}
	})
}

func TestTransactionIsRolledBackWhenTheDiskIsFullAtItsEnd(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.attach(1, amqp.RoleSender, "", func(a *amqp.Attach) { a.Target, a.Coordinator = nil, &amqp.Coordinator{} })
		declared, ok := r.transfer(1, 0, amqp.AppendValueSection(nil, (&amqp.Declare{}).Append(nil))).(*amqp.Declared)
		if !ok {
			t.Fatal("no transaction was declared")
		}
		r.deliveries++
		r.send(&amqp.Transfer{
			DeliveryID:    r.deliveries - 1,
			HasDeliveryID: true,
			DeliveryTag:   []byte("t"),
			State:         &amqp.TransactionalState{TxnID: declared.TxnID},
		}, amqp.AppendData(nil, []byte("x")))
		await[*amqp.Disposition](r)
		d.Sync()
		d.Fail(queue.ErrNoRoom)
		answer := r.transfer(1, 0, amqp.AppendValueSection(nil, (&amqp.Discharge{TxnID: declared.TxnID}).Append(nil)))
		if refused, ok := answer.(*amqp.Rejected); !ok || refused.Error.Condition != amqp.ErrCondResourceLimitExceeded {
			t.Errorf("the discharge is answered with %v, want rejected for the quota", answer)
		}
		d.Fail(nil)
		if n := counts(t, ns, "q").Active; n != 0 {
			t.Errorf("%d messages were sent, want none", n)
		}
	})
}

// presettled sends a message whose outcome nobody hears.
func (r *raw) presettled() {
	r.t.Helper()
	r.deliveries++
	r.send(&amqp.Transfer{
		DeliveryID:    r.deliveries - 1,
		HasDeliveryID: true,
		DeliveryTag:   []byte("t"),
		Settled:       true,
		HasSettled:    true,
	}, amqp.AppendData(nil, []byte("x")))
}

func TestPresettledTransferToAFullDiskDetachesItsLink(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		d.Fail(queue.ErrNoRoom)
		for range 3 {
			r.presettled()
		}
		detach, _ := await[*amqp.Detach](r)
		if detach.Error == nil || detach.Error.Condition != amqp.ErrCondResourceLimitExceeded {
			t.Errorf("the link was detached with %v, want the error of a quota", detach.Error)
		}
		synctest.Wait()
		if n := counts(t, ns, "q").Active; n != 0 {
			t.Errorf("the queue has %d messages, want none", n)
		}
	})
}

// The credit of the link bounds what waits for a slow disk, as it does for messages whose senders
// wait.
func TestPresettledTransfersGetNoCreditBeforeTheDiskHasThem(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		flow, _ := await[*amqp.Flow](r)
		for range flow.LinkCredit {
			r.presettled()
		}
		synctest.Wait()
		credit := func() (more uint32) {
			for len(r.in) > 0 {
				r.backlog = append(r.backlog, <-r.in)
			}
			for _, f := range r.backlog {
				if flow, ok := f.Performative.(*amqp.Flow); ok && flow.HasHandle {
					more += flow.LinkCredit
				}
			}
			return more
		}
		if more := credit(); more > 0 {
			t.Errorf("%d credits came before the disk has what was sent", more)
		}
		d.Sync()
		synctest.Wait()
		if credit() == 0 {
			t.Error("no credit came when the disk has what was sent")
		}
		if n := counts(t, ns, "q").Active; n != int(flow.LinkCredit) {
			t.Errorf("the queue has %d messages, want %d", n, flow.LinkCredit)
		}
	})
}

// deleting is a receiver that deletes what it receives, and sends n messages to a queue before.
func deleting(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk, n int) *azservicebus.Receiver {
	t.Helper()
	e, err := ns.Broker.Default().Entity("q")
	if err != nil {
		t.Fatal(err)
	}
	q := e.Queue()
	for range n {
		if _, err := q.Send(queue.Message{Body: []byte("\x00\x53\x75\xa0\x01m")}); err != nil {
			t.Fatal(err)
		}
	}
	d.Sync()
	receiver, err := hasty(t, ns).NewReceiverForQueue("q", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		t.Fatal(err)
	}
	return receiver
}

func TestReceiveAndDeleteOfManyIsOneWrite(t *testing.T) {
	const messages = 200
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		receiver := deleting(t, ns, d, messages)
		got := make(chan int, 1)
		go func() {
			ms, err := receiver.ReceiveMessages(t.Context(), messages, nil)
			if err != nil {
				t.Error(err)
			}
			got <- len(ms)
		}()
		synctest.Wait()
		d.Sync()
		synctest.Wait()
		if n := counts(t, ns, "q").Active; n != 0 {
			t.Errorf("after one write %d of %d messages are left", n, messages)
		}
		d.Sync()
		if n := <-got; n != messages {
			t.Errorf("%d messages came, want %d", n, messages)
		}
		if alone, held := d.Steps(); held > 0 || alone > messages+5 {
			t.Errorf("%d messages took %d steps, want one for each send and one for all that left", messages, alone+held)
		}
	})
}

// The disk fills up while it is to keep that messages are gone. They have not left then, and they
// are there when it has room again.
func TestReceiveAndDeleteFromADiskThatFillsUpLosesNothing(t *testing.T) {
	const messages = 5
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		receiver := deleting(t, ns, d, messages)
		got := make(chan int, 1)
		go func() {
			ms, err := receiver.ReceiveMessages(t.Context(), messages, nil)
			if err == nil || !strings.Contains(err.Error(), "disk of the broker is full") {
				t.Errorf("ReceiveMessages = %v, want the error of a quota", err)
			}
			got <- len(ms)
		}()
		synctest.Wait()
		d.Fail(queue.ErrNoRoom)
		if n := <-got; n != 0 {
			t.Errorf("%d messages left although the disk could not keep that they are gone", n)
		}
		q, _ := ns.Broker.Queue("q")
		for _, v := range brokertest.Seen(q.Peek(nil, 0, 10)) {
			if v.Locked || v.DeliveryCount > 0 {
				t.Errorf("message %d is locked: %v, and has %d deliveries, want that nobody had it", v.SequenceNumber, v.Locked, v.DeliveryCount)
			}
		}
		d.Fail(nil)
		defer goOn(d)()
		ms, err := receiver.ReceiveMessages(t.Context(), messages, nil)
		if err != nil || len(ms) != messages {
			t.Errorf("when there is room, ReceiveMessages = %d messages, %v, want %d", len(ms), err, messages)
		}
	})
}

func TestDeferredMessagesForDeletionAreNotLostWhenTheDiskFillsUp(t *testing.T) {
	onSlowDisk(t, nil, func(t *testing.T, ns *brokertest.Namespace, d *brokertest.SlowDisk) {
		receiver := deleting(t, ns, d, 1)
		q, _ := ns.Broker.Queue("q")
		c := q.NewConsumer(queue.PeekLock)
		c.AddCredit(1)
		ds, _, _ := c.Take(nil)
		if errs := q.Settle(queue.Settlement{Outcome: queue.Defer}, ds[0].LockToken); errs != nil {
			t.Fatal(errs)
		}
		d.Sync()
		number := []int64{ds[0].SequenceNumber}
		receive := func() error {
			ms, err := receiver.ReceiveDeferredMessages(t.Context(), number, nil)
			if err == nil && len(ms) != 1 {
				err = errors.New("no message")
			}
			return err
		}
		failed := make(chan error, 1)
		go func() { failed <- receive() }()
		synctest.Wait()
		d.Fail(queue.ErrNoRoom)
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "disk of the broker is full") {
			t.Errorf("ReceiveDeferredMessages = %v, want the error of a quota", err)
		}
		d.Fail(nil)
		d.Until(t, "ReceiveDeferredMessages when there is room", receive)
		if n := q.Counts().Deferred; n != 0 {
			t.Errorf("%d messages are left, want none", n)
		}
	})
}
