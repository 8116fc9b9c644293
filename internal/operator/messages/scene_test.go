// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/brokertest"
)

var orders = dlq.Place{Entity: "orders"}

// A scene is a namespace in memory, on fake time, whose queue orders may have dead letters.
type scene struct {
	*testing.T
	ns    *brokertest.Namespace
	conn  *operator.Connection
	queue *queue.Queue // orders
	lines []audit.Line // of the log
}

func (s *scene) note(l audit.Line) { s.lines = append(s.lines, l) }

// setup runs act with the dead letters m-1 to m-n in orders.
func setup(t *testing.T, n int, act func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate, c.Expiry = false, queue.Eager
			c.Queues = []broker.QueueConfig{
				{Name: "orders", DeadLetteringOnMessageExpiration: true, LockDuration: 30 * time.Second}, {Name: "again"},
				{Name: "unique", RequiresDuplicateDetection: true},
			}
			c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}, Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit", LockDuration: time.Minute}},
			}}}
		})
		c, err := config.Load("", func(string) string { return "" }, map[string]string{"namespace": ns.ConnectionString()})
		if err != nil {
			t.Fatal(err)
		}
		client, err := operator.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		client.SDK, client.Links, client.Admin = ns.Client(t), ns.Links(t), administration(t, ns)
		s := &scene{T: t, ns: ns, conn: &operator.Connection{Client: client, Sender: client.SDK, SenderLinks: ns.Links(t)}}
		s.queue, _ = ns.Broker.Queue("orders")
		if n > 0 {
			want := fmt.Sprintf("sent %d messages to orders, m-1 to m-%d\n", n, n)
			if got := s.send("orders", SendOptions{Count: n, MessageID: "m", Body: "one coffee", TTL: time.Second, Properties: []string{"kind=drink"}}); got != want {
				t.Errorf("Send printed %q, want %q", got, want)
			}
			time.Sleep(2 * time.Second)
			s.checkDeadLetters(n)
		}
		act(t, s)
	})
}

// administration is the administration API of the broker, over the network in memory.
func administration(t *testing.T, ns *brokertest.Namespace) *entities.Admin {
	t.Helper()
	const host = "admin.test"
	ln, err := ns.Net.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(httpapi.Config{Broker: ns.Broker})
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return ns.Net.Dial(ctx, host) }}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, httpapi.ErrServerClosed) {
			t.Errorf("Serve = %v", err)
		}
	})
	return &entities.Admin{Endpoints: []string{"http://" + host}, Client: &http.Client{Transport: transport}}
}

// send sends messages, and returns what is printed.
func (s *scene) send(entity string, o SendOptions) string {
	s.Helper()
	template, err := o.Message(time.Now())
	if err != nil {
		s.Fatal(err)
	}
	return s.output(func(out io.Writer) error { return Send(s.Context(), s.conn, entity, template, o, out) })
}

// output is what f prints, without an error.
func (s *scene) output(f func(io.Writer) error) string {
	s.Helper()
	var b bytes.Buffer
	if err := f(&b); err != nil {
		s.Fatalf("%v\n%s", err, &b)
	}
	return b.String()
}

// checkDeadLetters checks how many dead letters orders has.
func (s *scene) checkDeadLetters(want int) {
	s.Helper()
	if got := s.queue.Counts().DeadLetter; got != want {
		s.Errorf("%d dead letters are left, want %d", got, want)
	}
}
