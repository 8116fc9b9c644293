// SPDX-License-Identifier: Apache-2.0

package client

import (
	"io"
	"net"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// FuzzPeer feeds bytes to an open connection. It has a sender with transfers in flight, a receiver
// that waits, settles and drains, and a node that is being attached. The process survives any
// bytes, and every caller that waits learns of the end.
func FuzzPeer(f *testing.F) {
	frame := func(channel uint16, p amqp.Performative, payload string) []byte {
		return amqp.AppendFrame(nil, channel, p, []byte(payload))
	}
	flow := &amqp.Flow{IncomingWindow: 1, HasHandle: true, HasLinkCredit: true, LinkCredit: 1 << 31, Drain: true, Echo: true}
	begun := &amqp.Begin{RemoteChannel: 1, HasRemoteChannel: true, IncomingWindow: 1}
	for _, seed := range [][]byte{
		frame(0, &amqp.Disposition{Role: amqp.RoleReceiver, Last: 1<<32 - 1, Settled: true, State: amqp.Accepted{}}, ""),
		frame(0, &amqp.Disposition{Role: amqp.RoleReceiver, First: 1, Last: 0, State: &amqp.Rejected{}}, ""),
		append(frame(0, flow, ""), frame(0, &amqp.Detach{}, "")...),
		append(frame(1, begun, ""), frame(1, &amqp.Transfer{More: true}, "hel")...),
		append(frame(1, begun, ""), frame(1, &amqp.End{}, "")...),
		frame(0, &amqp.End{Error: &amqp.Error{Condition: "x"}}, ""),
		frame(0, &amqp.Close{Error: &amqp.Error{Condition: "x"}}, ""),
		frame(5, &amqp.Attach{Name: "overdue-", Handle: 1<<32 - 1}, ""),
		{0, 0, 0, 8, 2, 0, 0, 0},
		frame(0, &amqp.Transfer{Handle: 1, HasDeliveryID: true, DeliveryTag: []byte{1}, More: true}, "hel"),
		append(frame(0, &amqp.Transfer{Handle: 1, HasDeliveryID: true}, "whole"), frame(0, &amqp.Disposition{Last: 1<<32 - 1, Settled: true, State: &amqp.Rejected{}}, "")...),
		frame(0, &amqp.Flow{HasHandle: true, Handle: 1, HasDeliveryCount: true, DeliveryCount: 1 << 31, Drain: true}, ""),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }() // what it says does not matter
		c := newConn(near)
		c.wire.State, c.wire.Peer = transport.Open, &amqp.Open{ChannelMax: maxChannel}
		s := &session{c: c, changed: make(chan struct{}, 1), begun: true, windows: transport.Windows{Outgoing: 100}}
		l := &link{session: s, name: "overdue-", known: true, attached: true, credit: 2, changed: make(chan struct{}, 1)}
		receives := &link{session: s, name: "overdue-r", role: amqp.RoleReceiver, handle: 1, peer: 1, known: true, attached: true, credit: 3, head: 4, changed: make(chan struct{}, 1)}
		s.links, c.sessions, c.byPeer[0] = []*link{l, receives}, []*session{s}, s
		results := make(chan error)
		for _, payload := range []string{"a", "b", "without credit"} {
			go func() { results <- (&Sender{l}).Send(t.Context(), 0, []byte(payload)) }()
		}
		go func() {
			_, err := c.Node(t.Context(), "$cbs")
			results <- err
		}()
		go func() {
			r := &Receiver{receives}
			_, err := r.Receive(t.Context())
			for err == nil {
				if d := r.Arrived(); d != nil {
					err = r.Settle(t.Context(), amqp.Released{}, d)
				} else if err = r.Drain(t.Context()); err == nil {
					_, err = r.Receive(t.Context())
				}
			}
			results <- err
		}()
		go c.read()
		_, _ = far.Write(data) // the client may close before it has read all
		far.Close()
		for range 5 {
			select {
			case <-results:
			case <-time.After(time.Minute):
				t.Fatal("somebody waits after the peer has hung up")
			}
		}
		<-c.Done()
	})
}
