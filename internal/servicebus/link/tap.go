// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"overdue/internal/amqp"
)

// A tap is a connection on which the AMQP client opens one sending link, and that then speaks over that link in its
// place: it writes transfers itself, and keeps from the client what the peer says of credit, windows and outcomes, so that
// there is one who counts. All else stays the client's: the handshake, tokens, keep-alives, and how the link ends. The
// link MUST be alone in its session.
type tap struct {
	framed
	name string // of the link

	mu       sync.Mutex
	changed  chan struct{} // one token: what speak waits for may have come
	maxFrame uint32        // of the peer
	begins   map[uint16]*amqp.Begin
	ours     bareLink // the link as we number it
	named    bool     // ours is known
	theirs   bareLink // as the peer does
	attached bool     // theirs is known

	id     uint32 // delivery-count, and the id of the next delivery
	limit  uint32 // where the credit ends
	next   uint32 // next-outgoing-id
	window uint32 // where the peer's window ends

	first    uint32 // of the deliveries that await their outcomes
	accepted []bool
	left     int   // of them
	err      error // why the link is of no more use, or what was not accepted
}

func newTap(nc net.Conn, name string) *tap {
	t := &tap{name: name, changed: make(chan struct{}, 1), maxFrame: amqp.MinMaxFrameSize, begins: map[uint16]*amqp.Begin{}}
	t.framed = framed{Conn: nc, look: t.look}
	return t
}

// Read is for the one goroutine of the client that reads.
func (t *tap) Read(p []byte) (int, error) {
	n, err := t.framed.Read(p)
	if err != nil {
		t.fail(err)
	}
	return n, err
}

// Write is for the client, which writes a frame at a time. It learns how the client numbers the link.
func (t *tap) Write(p []byte) (int, error) {
	t.mu.Lock()
	if !t.named && len(p) > amqp.FrameHeaderSize && p[5] == amqp.FrameAMQP && string(p[:4]) != "AMQP" {
		if begin := 4 * int(p[4]); begin < len(p) {
			sent, _, err := amqp.DecodePerformative(p[begin:])
			if a, ok := sent.(*amqp.Attach); err == nil && ok && a.Name == t.name {
				t.ours, t.named = bareLink{binary.BigEndian.Uint16(p[6:]), a.Handle}, true
			}
		}
	}
	t.mu.Unlock()
	return t.Conn.Write(p)
}

// fail ends the use of the link.
func (t *tap) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failLocked(err)
}

func (t *tap) failLocked(err error) {
	if t.err == nil {
		t.err = err
	}
	t.signalLocked()
}

func (t *tap) signalLocked() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// look sees what the peer says, and keeps from the client what is about the link's deliveries.
func (t *tap) look(frame []byte, begin int) (keep int, payload []byte) {
	body := frame[begin:]
	r := amqp.NewReader(body)
	if r.PeekDescriptor() == amqp.CodeTransfer { // of $cbs
		return len(frame), nil
	}
	p, _, err := amqp.DecodePerformative(body)
	if err != nil {
		return len(frame), nil // the client has to see it
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.heardLocked(binary.BigEndian.Uint16(frame[6:]), p) {
		return begin, nil // an empty frame, which tells the client that the peer lives
	}
	return len(frame), nil
}

// heardLocked reports whether p is not for the client.
func (t *tap) heardLocked(channel uint16, p amqp.Performative) bool {
	ours := t.attached && channel == t.theirs.channel
	switch p := p.(type) {
	case *amqp.Open:
		t.maxFrame = p.MaxFrameSize
	case *amqp.Begin:
		if p.HasRemoteChannel {
			t.begins[p.RemoteChannel] = p
		}
	case *amqp.Attach:
		if b := t.begins[t.ours.channel]; t.named && p.Name == t.name && p.Role == amqp.RoleReceiver && b != nil {
			t.theirs, t.attached = bareLink{channel, p.Handle}, true
			t.window = b.IncomingWindow // we begin at 0
		}
	case *amqp.Flow:
		if ours {
			t.flowLocked(p)
		}
		return ours
	case *amqp.Disposition:
		if ours {
			t.outcomeLocked(p)
		}
		return ours
	case *amqp.Detach:
		if ours {
			t.failLocked(ended("link", p.Error))
		}
	case *amqp.End:
		if ours {
			t.failLocked(ended("session", p.Error))
		}
	case *amqp.Close:
		t.failLocked(ended("connection", p.Error))
	}
	return false
}

func ended(what string, e *amqp.Error) error {
	if e == nil {
		return fmt.Errorf("the peer ended the %s", what)
	}
	return fmt.Errorf("the peer ended the %s: %w", what, e)
}

// flowLocked takes credit and window. A peer that wants an answer gets none from here: it is left to others.
func (t *tap) flowLocked(f *amqp.Flow) {
	t.window = f.IncomingWindow
	if f.HasNextIncomingID {
		t.window += f.NextIncomingID
	}
	if f.HasHandle && f.Handle == t.theirs.handle && f.HasLinkCredit {
		t.limit = f.DeliveryCount + f.LinkCredit
	}
	if f.Echo || f.Drain {
		t.failLocked(errors.New("the peer asks for a flow, which is not written here"))
	}
	t.signalLocked()
}

// outcomeLocked takes what the peer says of deliveries. What is not accepted for good fails the link.
func (t *tap) outcomeLocked(d *amqp.Disposition) {
	if d.Role != amqp.RoleReceiver {
		return
	}
	for i := range t.accepted {
		if id := t.first + uint32(i); t.accepted[i] || int32(id-d.First) < 0 || int32(d.Last-id) < 0 {
			continue
		}
		switch state := d.State.(type) {
		case amqp.Accepted:
			if d.Settled {
				t.accepted[i] = true
				t.left--
				continue
			}
			t.failLocked(errors.New("the peer leaves it to the sender to settle"))
		case *amqp.Rejected:
			t.failLocked(ended("delivery", state.Error))
		default:
			t.failLocked(fmt.Errorf("a delivery has the outcome %T", d.State))
		}
	}
	t.signalLocked()
}

// speak writes the payloads as deliveries and waits until all are accepted. Calls come one at a time. After an error
// nothing is known of their outcomes, and the link is of no more use.
func (t *tap) speak(ctx context.Context, payloads [][]byte, room []byte) (buf []byte, err error) {
	defer func() {
		if err != nil {
			t.fail(err)
		}
	}()
	n := uint32(len(payloads))
	if err := t.await(ctx, func() bool { return int32(t.limit-t.id-n) >= 0 }); err != nil {
		return room, err
	}
	t.mu.Lock()
	first, frames := t.id, uint32(0)
	buf = room[:0]
	for i, payload := range payloads {
		var k uint32
		buf, k = t.appendLocked(buf, first+uint32(i), payload)
		frames += k
	}
	t.mu.Unlock()
	if err := t.await(ctx, func() bool { return int32(t.window-t.next-frames) >= 0 }); err != nil {
		return buf, err
	}
	t.mu.Lock()
	t.id, t.next, t.first, t.left = t.id+n, t.next+frames, first, len(payloads)
	t.accepted = append(t.accepted[:0], make([]bool, len(payloads))...)
	t.mu.Unlock()
	deadline, _ := ctx.Deadline()
	_ = t.SetWriteDeadline(deadline) // the client sets its own before each write; a failure shows in the write
	if _, err := t.Conn.Write(buf); err != nil {
		return buf, err
	}
	return buf, t.await(ctx, func() bool { return t.left == 0 })
}

// appendLocked appends the frames of one delivery.
func (t *tap) appendLocked(buf []byte, id uint32, payload []byte) (out []byte, frames uint32) {
	tr := amqp.Transfer{
		Handle: t.ours.handle, HasDeliveryID: true, DeliveryID: id, DeliveryTag: binary.BigEndian.AppendUint32(nil, id),
		HasMessageFormat: true, HasSettled: true,
	}
	for room := tr.Room(t.maxFrame); ; payload = payload[room:] {
		frames++
		if tr.More = len(payload) > room; !tr.More {
			return amqp.AppendFrame(buf, t.ours.channel, &tr, payload), frames
		}
		buf = amqp.AppendFrame(buf, t.ours.channel, &tr, payload[:room])
	}
}

// await returns when come, which is called with the mutex held, says so.
func (t *tap) await(ctx context.Context, come func() bool) error {
	for {
		t.mu.Lock()
		err, ok := t.err, come()
		t.mu.Unlock()
		if err != nil || ok {
			return err
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
