// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/testing/exercise"
	"overdue/internal/testing/pipenet"
	"overdue/proxy"
)

// endpoint opens the AMQP endpoint of the proxy and returns how to get there.
func (s *scene) endpoint() (dial func(context.Context) (net.Conn, error)) {
	return s.endpointOf(s.proxy)
}

func (s *scene) endpointOf(p *proxy.Proxy) (dial func(context.Context) (net.Conn, error)) {
	s.Helper()
	front := pipenet.New()
	ln, err := front.Listen("endpoint")
	if err != nil {
		s.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ln) }()
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			s.Errorf("closing the proxy: %v", err)
		}
		if err := <-ended; err != nil {
			s.Errorf("Serve = %v, want nil", err)
		}
	})
	return func(ctx context.Context) (net.Conn, error) { return front.Dial(ctx, "endpoint") }
}

// app is a sender of an app that has changed nothing but where it connects to.
func (s *scene) app(dial func(context.Context) (net.Conn, error)) *azservicebus.Sender {
	s.Helper()
	sender, err := s.clientAt(dial).NewSender(workQueue, nil)
	if err != nil {
		s.Fatal(err)
	}
	return sender
}

// clientAt is a client of such an app.
func (s *scene) clientAt(dial func(context.Context) (net.Conn, error)) *azservicebus.Client {
	s.Helper()
	c, err := azservicebus.NewClientFromConnectionString(s.Namespace.ConnectionString(), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return dial(ctx) },
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close(context.Background()) }) // the endpoint may be closed
	return c
}

// The same promise for an app that speaks AMQP: one by one, in batches, scheduled either way.
func TestMissedDeadlinesOfAnAppAtTheAMQPEndpoint(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		app := s.app(s.endpoint())
		message := func(id string, life time.Duration) *azservicebus.Message {
			return &azservicebus.Message{MessageID: &id, Body: []byte("body of " + id), TimeToLive: &life}
		}
		must := func(err error) {
			s.Helper()
			if err != nil {
				s.Fatal(err)
			}
		}
		var want []string
		for i := range 50 {
			id := fmt.Sprint("single-", i)
			want = append(want, id)
			must(app.SendMessage(s.Context(), message(id, 2*time.Second+time.Duration(i)*50*time.Millisecond), nil))
		}
		batch, err := app.NewMessageBatch(s.Context(), nil)
		must(err)
		for i := range 50 {
			id := fmt.Sprint("batch-", i)
			want = append(want, id)
			must(batch.AddMessage(message(id, 2*time.Second+time.Duration(i)*50*time.Millisecond), nil))
		}
		must(app.SendMessageBatch(s.Context(), batch, nil))
		at := time.Now().Add(5 * time.Second)
		numbers, err := app.ScheduleMessages(s.Context(), []*azservicebus.Message{message("requested", time.Second), message("cancelled", time.Second)}, at, nil)
		must(err)
		must(app.CancelScheduledMessages(s.Context(), numbers[1:], nil))
		annotated := message("annotated", time.Second)
		annotated.ScheduledEnqueueTime = &at
		must(app.SendMessage(s.Context(), annotated, nil))
		want = append(want, "requested", "annotated")

		time.Sleep(10 * time.Second)
		lags := s.Lags(workQueue)
		slices.Sort(want)
		if got := s.Hook.Subjects(); !slices.Equal(got, want) {
			s.Fatalf("%d messages were notified, want %d", len(got), len(want))
		}
		if len(lags) != len(want) || lags[len(lags)-1] > 250*time.Millisecond {
			s.Errorf("%d were dead-lettered, the last %v late, want %d at most 250 ms late", len(lags), lags[len(lags)-1], len(want))
		}
		time.Sleep(10 * time.Minute) // until nothing can still arrive of what was cancelled
		s.Settled(time.Second)
	})
}

// A companion is there before the message of a transaction is, and must not take its absence
// for an answer.
func TestMissedDeadlinesOfATransaction(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		dial := s.endpoint()
		encode := func(id string) []byte {
			b, err := (&amqp.Message{
				Header: &amqp.MessageHeader{TTL: 5 * time.Second}, Properties: &amqp.MessageProperties{MessageID: id}, Data: [][]byte{[]byte("body")},
			}).MarshalBinary()
			if err != nil {
				s.Fatal(err)
			}
			return b
		}
		quick := exercise.Transact(s.T, dial, workQueue, encode("quick"))
		slow := exercise.Transact(s.T, dial, workQueue, encode("slow"))
		undone := exercise.Transact(s.T, dial, workQueue, encode("undone"))
		quick(true)
		time.Sleep(20 * time.Second) // longer than the deadline
		if got := s.Hook.Subjects(); !slices.Equal(got, []string{"quick"}) {
			s.Fatalf("notified of %v, want the message that was committed at once", got)
		}
		slow(true)
		undone(false)
		time.Sleep(2*time.Minute + 10*time.Second)
		if got := s.Hook.Subjects(); !slices.Equal(got, []string{"quick", "slow"}) {
			s.Errorf("notified of %v, want what was committed", got)
		}
		lags := s.Lags(workQueue)
		s.Logf("lags %v", lags)
		if len(lags) != 2 || lags[0] > 250*time.Millisecond {
			s.Errorf("dead-lettered %v late, want two, and the one committed at once at most 250 ms", lags)
		}
		s.Settled(time.Second)
	})
}
