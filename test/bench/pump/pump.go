// SPDX-License-Identifier: Apache-2.0

// Package pump is an AMQP client that costs as little as possible: it writes frames that it encodes
// cheaply and counts what comes back. It shows what the other end can do.
package pump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"overdue/internal/amqp"
)

// A Pump is one connection with one link.
type Pump struct {
	nc net.Conn

	mu       sync.Mutex
	changed  *sync.Cond
	limit    uint32 // deliveries that the link may send
	open     uint32 // and the session's window; each is one frame
	settled  uint32
	received uint32
	refused  error
	err      error
}

const (
	window = 1 << 20 // frames
	credit = 2000    // deliveries, also the most that one SDK receiver asks for
	ack    = 500     // deliveries per disposition
	write  = 64 << 10
)

// New connects to address and attaches one link of this role to the entity. A sender waits for its
// first credit; a receiver asks for messages at once.
func New(address, entity string, role amqp.Role) (*Pump, error) {
	nc, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Pump{nc: nc}
	p.changed = sync.NewCond(&p.mu)
	w := append([]byte(nil), amqp.ProtoAMQP[:]...)
	w = amqp.AppendFrame(w, 0, &amqp.Open{ContainerID: "pump", MaxFrameSize: 1 << 16}, nil)
	w = amqp.AppendFrame(w, 0, &amqp.Begin{IncomingWindow: window, OutgoingWindow: window, HandleMax: 1}, nil)
	w = amqp.AppendFrame(w, 0, &amqp.Attach{
		Name: "pump", Role: role, SndSettleMode: amqp.SndUnsettled,
		Source: &amqp.Source{Address: entity, HasAddress: true},
		Target: &amqp.Target{Address: entity, HasAddress: true},
	}, nil)
	if role == amqp.RoleReceiver {
		w = amqp.AppendFrame(w, 0, grant(0), nil)
	}
	if _, err := nc.Write(w); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	go p.read(role)
	if role == amqp.RoleSender {
		err = p.await(func() bool { return p.limit > 0 })
	}
	return p, err
}

func grant(received uint32) *amqp.Flow {
	return &amqp.Flow{
		HasNextIncomingID: true, NextIncomingID: received, IncomingWindow: window, OutgoingWindow: window,
		HasHandle: true, HasDeliveryCount: true, DeliveryCount: received, HasLinkCredit: true, LinkCredit: credit,
	}
}

// Send sends payload n times, as many at once as there is credit for, and waits until all are
// settled. It fails when one is rejected.
func (p *Pump) Send(format uint32, payload []byte, n int) error {
	var buf []byte
	m := &amqp.Transfer{HasDeliveryID: true, HasMessageFormat: true, MessageFormat: format, HasSettled: true, DeliveryTag: make([]byte, 4)}
	p.mu.Lock()
	first := p.settled
	p.mu.Unlock()
	end := first + uint32(n)
	for sent := first; sent < end; {
		p.mu.Lock()
		limit := min(end, p.limit, p.open)
		p.mu.Unlock()
		for buf = buf[:0]; sent < limit && len(buf) < write; sent++ {
			m.DeliveryID = sent
			binary.BigEndian.PutUint32(m.DeliveryTag, sent)
			buf = amqp.AppendFrame(buf, 0, m, payload)
		}
		if len(buf) == 0 {
			if err := p.await(func() bool { return min(p.limit, p.open) > sent }); err != nil {
				return err
			}
		} else if _, err := p.nc.Write(buf); err != nil {
			return err
		}
	}
	return p.await(func() bool { return p.settled >= end })
}

// Receive waits until n deliveries have come since New. All that come are accepted, some at a time.
func (p *Pump) Receive(n int) error { return p.await(func() bool { return p.received >= uint32(n) }) }

// Close closes the connection.
func (p *Pump) Close() error {
	return p.nc.Close() // without a word, which is the broker's normal case
}

func (p *Pump) await(f func() bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !f() {
		if err := errors.Join(p.refused, p.err); err != nil {
			return fmt.Errorf("pump: %w", err)
		}
		p.changed.Wait()
	}
	return p.refused
}

// read counts what comes until the connection ends. It never waits for a write: writes to a peer
// that reads as fast as the broker does not block for long.
func (p *Pump) read(role amqp.Role) {
	in := amqp.NewFrameReader(p.nc, 1<<20)
	_, err := in.ReadProto()
	var dec amqp.Decoder
	var received, acked uint32
	for err == nil {
		var f amqp.Frame
		if f, err = in.Next(); err != nil || len(f.Body) == 0 {
			continue
		}
		if role == amqp.RoleReceiver && len(f.Body) > 200 { // a transfer: no other frame is so long
			received++
			if !in.Ready() && received-acked >= ack/5 || received-acked >= ack {
				w := amqp.AppendFrame(nil, 0, &amqp.Disposition{Role: amqp.RoleReceiver, First: acked, Last: received - 1, Settled: true, State: amqp.Accepted{}}, nil)
				w = amqp.AppendFrame(w, 0, grant(received), nil)
				acked = received
				_, err = p.nc.Write(w)
			}
			p.count(func() { p.received = received })
			continue
		}
		var performative amqp.Performative
		if performative, _, err = dec.Decode(f.Body); err != nil {
			continue
		}
		p.count(func() {
			switch q := performative.(type) {
			case *amqp.Begin:
				p.open = q.IncomingWindow
			case *amqp.Flow:
				p.open = q.NextIncomingID + q.IncomingWindow
				if q.HasHandle {
					p.limit = q.DeliveryCount + q.LinkCredit
				}
			case *amqp.Disposition:
				if r, ok := q.State.(*amqp.Rejected); ok {
					p.refused = r.Error
				}
				p.settled += q.Last - q.First + 1
			case *amqp.Detach:
				p.refused = errors.Join(errors.New("detached"), q.Error)
			}
		})
	}
	p.count(func() {
		if p.err = err; errors.Is(err, io.EOF) {
			p.err = io.ErrUnexpectedEOF
		}
	})
}

func (p *Pump) count(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}
