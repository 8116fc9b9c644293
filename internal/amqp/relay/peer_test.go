// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"overdue/internal/amqp"
)

// A peer is a client that says what the test wants, frame by frame. Frames to it are read at once
// and kept.
type peer struct {
	s   *scene
	nc  net.Conn
	got chan string // traces of what came
}

// peer opens a connection and a session without any library.
func (s *scene) peer() *peer { return s.peerAt(s.dial) }

// peerAt is peer behind another dial.
func (s *scene) peerAt(dial func(context.Context) (net.Conn, error)) *peer {
	s.Helper()
	nc, err := dial(s.Context())
	s.must(err)
	p := &peer{s: s, nc: nc, got: make(chan string, 100_000)}
	s.Cleanup(func() { nc.Close() })
	in := amqp.NewFrameReader(nc, 65536)
	go func() {
		defer close(p.got)
		if _, err := in.ReadProto(); err != nil {
			return
		}
		for {
			f, err := in.Next()
			if err != nil {
				return
			}
			if len(f.Body) == 0 {
				continue
			}
			v, payload, err := amqp.DecodePerformative(f.Body)
			if err != nil {
				p.got <- "malformed: " + err.Error()
				return
			}
			p.got <- amqp.Trace(v, len(payload))
		}
	}()
	_, err = nc.Write(amqp.ProtoAMQP[:])
	s.must(err)
	p.write(0, &amqp.Open{ContainerID: "peer", ChannelMax: 10}, nil)
	p.write(0, &amqp.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 100}, nil)
	p.expect("begin")
	return p
}

func (p *peer) write(ch uint16, v amqp.Performative, payload []byte) {
	p.s.Helper()
	_, err := p.nc.Write(amqp.AppendFrame(nil, ch, v, payload))
	p.s.must(err)
}

// expect waits for one of these performatives and returns its trace.
func (p *peer) expect(names ...string) string {
	p.s.Helper()
	timeout := time.After(time.Hour)
	var seen []string
	for {
		select {
		case got, ok := <-p.got:
			if !ok {
				p.s.Fatalf("the connection ended after %q, want %q", seen, names)
			}
			if name, _, _ := strings.Cut(got, " "); slices.Contains(names, name) {
				return got
			}
			if seen = append(seen, got); len(seen) > 20 {
				seen = seen[1:]
			}
		case <-timeout:
			p.s.Fatalf("nothing came after %q, want %q", seen, names)
		}
	}
}

func (p *peer) attachSender(name string, handle uint32, address string) {
	p.s.Helper()
	p.write(0, &amqp.Attach{
		Name: name, Handle: handle, Role: amqp.RoleSender,
		Source: &amqp.Source{}, Target: &amqp.Target{Address: address, HasAddress: true},
	}, nil)
	p.expect("attach")
}

// tryTransfer sends a message whatever the credit and the window are. It reports
// whether the connection still takes it.
func (p *peer) tryTransfer(handle, id uint32) bool {
	_, err := p.nc.Write(amqp.AppendFrame(nil, 0, &amqp.Transfer{
		Handle: handle, DeliveryID: id, HasDeliveryID: true, DeliveryTag: []byte{byte(id), byte(id >> 8), byte(id >> 16)},
	}, amqp.AppendData(nil, []byte("x"))))
	return err == nil
}
