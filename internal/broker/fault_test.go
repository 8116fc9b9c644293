// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/testseed"
)

// impatient retries fast, so that a run of many cuts stays short.
var impatient = azservicebus.RetryOptions{MaxRetries: 10, RetryDelay: 10 * time.Millisecond, MaxRetryDelay: 100 * time.Millisecond}

func TestAcknowledgedMessagesSurviveCutConnections(t *testing.T) {
	first := testseed.Of(t)
	for i := range uint64(20) {
		seed := first + i
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, func(c *broker.Config) {
				c.AutoCreateConfig = broker.QueueConfig{LockDuration: 5 * time.Second, MaxDeliveryCount: 1000}
			}, func(t *testing.T, ns *brokertest.Namespace) { survive(t, ns, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

// survive sends and receives while connections are cut in the middle of
// frames, and checks that every acknowledged message is received, and that a
// completed one does not come back.
func survive(t *testing.T, ns *brokertest.Namespace, rnd *rand.Rand) {
	const messages, cuts = 150, 25
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	client := func() *azservicebus.Client {
		o := ns.ClientOptions()
		o.RetryOptions = impatient
		c, err := azservicebus.NewClientFromConnectionString(ns.ConnectionString(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(ctx) }) // its connection may be cut
		return c
	}
	for _, d := range []pipenet.Direction{pipenet.ToDialer, pipenet.ToListener} {
		ns.Net.Delay(d, time.Millisecond) // so that something is under way when a cut comes
	}
	sender, err := client().NewSender("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := client().NewReceiverForQueue("q", nil)
	if err != nil {
		t.Fatal(err)
	}

	acknowledged := make(chan []string)
	go func() {
		var ids []string
		for i := range messages {
			id := fmt.Sprint(i)
			if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id}, nil); err == nil {
				ids = append(ids, id)
			}
		}
		acknowledged <- ids
	}()
	cutting := make(chan struct{})
	go func() {
		defer close(cutting)
		for range cuts {
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			d := pipenet.ToDialer
			if rnd.IntN(2) == 0 {
				d = pipenet.ToListener
			}
			ns.Net.CutAfter(d, rnd.Int64N(2000))
		}
		ns.Net.CutAfter(pipenet.Both, -1)
	}()

	var want []string
	sent := false
	completed := make(map[int64]bool) // by sequence number
	received := make(map[string]bool)
	for {
		if !sent {
			select {
			case want = <-acknowledged:
				sent = true
			default:
			}
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		ms, _ := receiver.ReceiveMessages(short, 10, nil) // fails as often as it is cut
		cancel()
		for _, m := range ms {
			if completed[*m.SequenceNumber] {
				t.Errorf("message %s, number %d, was completed and came again", m.MessageID, *m.SequenceNumber)
			}
			received[m.MessageID] = true
			if err := receiver.CompleteMessage(ctx, m, nil); err == nil {
				completed[*m.SequenceNumber] = true
			}
		}
		if q, _ := ns.Broker.Queue("q"); sent && q != nil && q.Counts().Active == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the queue did not run empty")
		}
	}
	<-cutting
	for _, id := range want {
		if !received[id] {
			t.Errorf("message %s was acknowledged and never received", id)
		}
	}
	if len(want) < messages/2 {
		t.Errorf("%d of %d sends were acknowledged; the test shows little", len(want), messages)
	}
}
