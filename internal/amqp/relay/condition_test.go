// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/pipenet"
)

// conditionOf is the condition that ended a link or a connection, or that a message was refused
// with.
func conditionOf(err error) string {
	var link *goamqp.LinkError
	var conn *goamqp.ConnError
	var refused *goamqp.Error
	switch {
	case errors.As(err, &link) && link.RemoteErr != nil:
		return string(link.RemoteErr.Condition)
	case errors.As(err, &conn) && conn.RemoteErr != nil:
		return string(conn.RemoteErr.Condition)
	case errors.As(err, &refused):
		return string(refused.Condition)
	}
	return ""
}

// A client gets the error that Service Bus would send, whatever happens upstream, and never an
// acceptance of a message that was not accepted. The SDK recovers by itself once the cause is gone.
func TestAClientHearsWhatServiceBusWouldSay(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin func(s *scene) (end func())
		want  string
		final bool // to the Go SDK, which wants a new sender then
	}{
		{"cut", func(s *scene) func() { s.ns.Net.Cut(); return func() {} }, "amqp:connection:forced", false},
		{"half-open", func(s *scene) func() {
			s.ns.Net.Stall(pipenet.ToDialer)
			return func() { s.ns.Net.Cut(); s.ns.Net.Resume(pipenet.ToDialer) }
		}, "amqp:connection:forced", false},
		{"not reachable", func(s *scene) func() {
			s.ns.Net.Refuse(true)
			s.ns.Net.Cut()
			return func() { s.ns.Net.Refuse(false) }
		}, "amqp:connection:forced", false},
		{"throttled", func(s *scene) func() {
			return s.ns.Broker.Default().Inject(broker.Fault{Entity: "orders", Operation: broker.OnSend, Error: broker.ServerBusy()})
		}, "com.microsoft:server-busy", false},
		{"detached", func(s *scene) func() {
			return s.ns.Broker.Default().Inject(broker.Fault{
				Entity: "orders", Operation: broker.OnSend, Detach: true,
				Error: amqp.Errorf(amqp.ErrCondLinkDetachForced, "The link is force detached."),
			})
		}, "amqp:link:detach-forced", false},
		{"entity deleted", func(s *scene) func() {
			s.must(s.ns.Broker.Default().DeleteQueue("orders"))
			return func() {
				_, err := s.ns.Broker.Default().CreateQueue(broker.QueueConfig{Name: "orders"})
				s.must(err)
			}
		}, "amqp:not-found", true},
		{"entity full", func(s *scene) func() {
			return s.ns.Broker.Default().Inject(broker.Fault{Entity: "orders", Operation: broker.OnSend, Error: broker.EntityFull()})
		}, "amqp:resource-limit-exceeded", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, nil)
				s.ns.Net.Delay(pipenet.Both, time.Millisecond)
				raw := s.sender(s.raw(nil), nil)
				s.must(raw.Send(t.Context(), text("before"), nil))
				client := s.client()
				app, err := client.NewSender("orders", nil)
				s.must(err)
				send := func(body string) error {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					return app.SendMessage(ctx, &azservicebus.Message{Body: []byte(body)}, nil)
				}
				s.must(send("before, by the SDK"))

				end := c.begin(s)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				err = raw.Send(ctx, text("during"), nil)
				if got := conditionOf(err); got != c.want {
					t.Errorf("a send = %v with %q, want %s", err, got, c.want)
				}
				end()
				if c.final {
					app, err = client.NewSender("orders", nil)
					s.must(err)
				}
				s.must(send("after"))
				if all := s.waiting(); all[len(all)-1] != "after" {
					t.Errorf("upstream has %q, want what was sent after", all)
				}
			})
		})
	}
}

func TestOddUpstreamsWorkOrGetAClearError(t *testing.T) {
	usual := amqp.Open{ContainerID: "odd", MaxFrameSize: 65536, ChannelMax: 10, IdleTimeout: 60_000}
	with := func(change func(*amqp.Open)) amqp.Open {
		o := usual
		change(&o)
		return o
	}
	for _, c := range []struct {
		name      string
		open      amqp.Open
		handleMax uint32
		own       bool   // the relay has tokens of its own
		links     int    // that the client opens; the first works where none is refused
		want      string // condition; "" = all works
		says      string
	}{
		{name: "frames of 512 bytes", open: with(func(o *amqp.Open) { o.MaxFrameSize = 512 }), handleMax: 100, links: 3},
		{name: "one session", open: with(func(o *amqp.Open) { o.ChannelMax = 0 }), handleMax: 100, links: 3},
		{name: "one session, and tokens of the relay's own", open: with(func(o *amqp.Open) { o.ChannelMax = 0 }), handleMax: 100, own: true,
			links: 1, want: "amqp:connection:forced", says: "channel-max 0"},
		{name: "an idle time-out of 100 ms", open: with(func(o *amqp.Open) { o.IdleTimeout = 100 }), handleMax: 100, links: 3},
		{name: "an idle time-out of 1 ms", open: with(func(o *amqp.Open) { o.IdleTimeout = 1 }), handleMax: 100,
			links: 1, want: "amqp:connection:forced", says: "idle-time-out is 1 ms"},
		{name: "frames of 100 bytes", open: with(func(o *amqp.Open) { o.MaxFrameSize = 100 }), handleMax: 100,
			links: 1, want: "amqp:connection:forced", says: "max-frame-size is 100"},
		{name: "two links", open: usual, handleMax: 1, links: 3, want: "amqp:resource-limit-exceeded", says: "too many links"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, func(cfg *Config) {
					if c.own {
						cfg.Tokens = ownKey()
					}
					cfg.Dial = func(context.Context) (net.Conn, error) {
						near, far := net.Pipe()
						u := &endlessUpstream{idle: 10 * time.Second, open: c.open, handleMax: c.handleMax}
						go u.serve(far)
						return near, nil
					}
				})
				err := openLinks(s, c.links)
				switch got := conditionOf(err); {
				case got != c.want:
					t.Errorf("%d links = %v with %q, want %q", c.links, err, got, c.want)
				case err != nil && !strings.Contains(err.Error(), c.says):
					t.Errorf("%d links = %v, want an error that says %q", c.links, err, c.says)
				}
				time.Sleep(time.Minute) // upstream's keep-alives end with its connection
			})
		})
	}
}

// openLinks opens a connection with n senders and sends a large message, settled, over each.
func openLinks(s *scene, n int) error {
	nc, err := s.dial(s.Context())
	s.must(err)
	conn, err := goamqp.NewConn(s.Context(), nc, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous(), HostName: "overdue.test"})
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(s.Context(), nil)
	if err != nil {
		return err
	}
	for range n {
		sender, err := session.NewSender(s.Context(), "orders", &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
		if err != nil {
			return err
		}
		if err := sender.Send(s.Context(), goamqp.NewMessage(largePayload), nil); err != nil {
			return err
		}
	}
	time.Sleep(10 * time.Second) // a connection that upstream does not like has ended by then
	_, err = session.NewSender(s.Context(), "orders", nil)
	return err
}
