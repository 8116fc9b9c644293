// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
)

// often begins the ids that come again and again.
const often = "often-"

// fates is an app with several senders and consumers, in front of two proxies that do not know
// of each other, whose message-ids repeat.
type fates struct {
	*scene
	rng       *rand.Rand
	clients   []*azservicebus.Client
	receivers []*azservicebus.Receiver // consumers: one at each endpoint, one past both

	settled map[int64]bool // by sequence number: a consumer was notified that it has settled the message
}

// send sends one message, or a few at once, some of them with an id that was used already.
func (f *fates) send(i int, senders []*azservicebus.Sender) {
	sender := senders[f.rng.IntN(len(senders))]
	message := func(n int) *azservicebus.Message {
		id := fmt.Sprintf("m-%d-%d", i, n)
		if f.rng.IntN(3) == 0 {
			id = fmt.Sprint(often, f.rng.IntN(4))
		}
		life := []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second, 90 * time.Second}[f.rng.IntN(4)]
		m := &azservicebus.Message{MessageID: &id, Body: []byte("body"), TimeToLive: &life}
		if f.rng.IntN(6) == 0 {
			m.TimeToLive, m.ApplicationProperties = nil, map[string]any{"overdue-within": life.String()}
		}
		return m
	}
	if f.rng.IntN(4) > 0 {
		f.Must(sender.SendMessage(f.Context(), message(0), nil))
		return
	}
	b, err := sender.NewMessageBatch(f.Context(), nil)
	f.Must(err)
	for n := range 2 + f.rng.IntN(6) {
		f.Must(b.AddMessage(message(n), nil))
	}
	f.Must(sender.SendMessageBatch(f.Context(), b, nil))
}

// consume takes what a consumer gets and does one thing or another with it.
func (f *fates) consume(r *azservicebus.Receiver) {
	ms := f.receiveSome(r)
	for _, m := range ms {
		number := *m.SequenceNumber
		var err error
		done := false
		switch f.rng.IntN(10) {
		case 0, 1, 2, 3, 4:
			err, done = r.CompleteMessage(f.Context(), m, nil), true
		case 5:
			err, done = r.DeadLetterMessage(f.Context(), m, nil), true
		case 6, 7:
			err = r.AbandonMessage(f.Context(), m, nil)
		case 8:
			// Forgotten: its lock lapses, or a late settlement fails.
			if f.rng.IntN(2) == 0 {
				time.Sleep(21 * time.Second)
				err, done = r.CompleteMessage(f.Context(), m, nil), true
			}
		case 9:
			time.Sleep(time.Duration(f.rng.IntN(8000)) * time.Millisecond)
			err, done = r.CompleteMessage(f.Context(), m, nil), true
		}
		if code := (*azservicebus.Error)(nil); errors.As(err, &code) && code.Code == azservicebus.CodeLockLost {
			continue
		}
		f.Must(err)
		if done {
			f.settled[number] = true
		}
	}
}

func (f *fates) receiveSome(r *azservicebus.Receiver) []*azservicebus.ReceivedMessage {
	f.Helper()
	if f.Queue(workQueue).Counts().Active == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(f.Context(), 200*time.Millisecond)
	defer cancel()
	ms, err := r.ReceiveMessages(ctx, 1+f.rng.IntN(5), nil)
	if err != nil && ctx.Err() == nil {
		f.Fatal(err)
	}
	return ms
}

// Consumers do anything that they can through the endpoints. A message that is not settled is
// expired at its deadline, or as soon as its lock ends, and notified once. Nothing is expired
// early, and no settled message is notified.
func TestRandomSettlementsCostNoDeadline(t *testing.T) {
	seed := testseed.Of(t)
	for round := range uint64(racetest.Sized(4, 2)) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			play(t, func(s *scene) { randomFates(s, rand.New(rand.NewPCG(seed, round))) }, early, func(_ *scene, c *broker.Config) {
				c.Queues[0].LockDuration, c.Queues[0].MaxDeliveryCount = 20*time.Second, 1000
			})
		})
	}
}

func randomFates(s *scene, rng *rand.Rand) {
	s.MeasureClock()
	other := s.newScheduler(s.counter) // of the second sidecar
	s.Must(other.MeasureClock(s.Context()))
	f := &fates{scene: s, rng: rng, settled: map[int64]bool{}}
	f.clients = []*azservicebus.Client{s.clientAt(s.endpoint()), s.clientAt(s.endpointOf(s.newProxy(other)))}
	f.receivers = []*azservicebus.Receiver{s.consumer(f.clients[0], nil), s.consumer(f.clients[1], nil), s.consumer(s.Client, nil)}
	var senders []*azservicebus.Sender
	for _, c := range f.clients {
		sender, err := c.NewSender(workQueue, nil)
		s.Must(err)
		s.Must(sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: new(string)}, nil)) // opens what is slow to open
		senders = append(senders, sender)
	}
	for _, r := range f.receivers[:2] {
		ms, err := r.ReceiveMessages(s.Context(), 1, nil)
		s.Must(err)
		s.Must(r.CompleteMessage(s.Context(), ms[0], nil))
	}
	s.startMonitor()
	time.Sleep(time.Second)
	for i := range 100 {
		f.send(i, senders)
		if rng.IntN(3) > 0 {
			f.consume(f.receivers[rng.IntN(len(f.receivers))])
		}
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
	}
	time.Sleep(5 * time.Minute)
	s.Settled(time.Minute)
	f.check()
}

func (f *fates) check() {
	f.Helper()
	if left := f.Waiting(workQueue); len(left) != 0 {
		f.Errorf("%d messages are on the work queue after their deadlines, such as %s, want none", len(left), left[0].MessageID)
	}
	var missed []string
	for _, m := range f.Dead(workQueue) {
		if m.DeadLetterReason == "" {
			continue // by a consumer
		}
		missed = append(missed, m.MessageID)
		if f.settled[m.SequenceNumber] {
			f.Errorf("%s (%d) was expired after a consumer had settled it", m.MessageID, m.SequenceNumber)
		}
		lag := m.DeadLetteredTime.Sub(m.ExpiresAt)
		if lag < 0 {
			f.Errorf("%s was expired %v early", m.MessageID, -lag)
		}
		if most := 22 * time.Second; lag > most {
			f.Errorf("%s was expired %v after its deadline, want %v at most", m.MessageID, lag, most)
		}
		// Where an id repeats a pass may take a message for another, and check again.
		if m.DeliveryCount == 0 && lag > 3*time.Second || m.DeliveryCount == 0 && lag > 500*time.Millisecond && !strings.HasPrefix(m.MessageID, often) {
			f.Errorf("%s, which nobody has received, was expired %v after its deadline", m.MessageID, lag)
		}
	}
	slices.Sort(missed)
	// Of messages with one id that are sent and missed together, the monitor may notify of one
	// alone.
	repeated := func(id string) bool { return strings.HasPrefix(id, often) }
	notified := f.Hook.Subjects()
	missed, notified = slices.DeleteFunc(missed, repeated), slices.DeleteFunc(notified, repeated)
	if diff := cmp.Diff(missed, notified); diff != "" {
		f.Errorf("what was missed and what was notified (-want +got):\n%s", diff)
	}
	f.Logf("%d settled, %d missed of unique id, %v cancels, %v peeks, %v companions received of %v",
		len(f.settled), len(missed), f.Operations("cancel"), f.Operations("peek"), f.Operations("receive"), f.Operations("schedule"))
}
