// SPDX-License-Identifier: Apache-2.0

package wiretap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"overdue/internal/amqp"
)

type direction int

const (
	fromClient direction = iota
	fromService
)

func (d direction) other() direction { return 1 - d }

// maxFrame bounds what a frame may cost; no peer of ours writes larger ones.
const maxFrame = 16 << 20

var errNotAMQP = errors.New("this is not AMQP")

// A wire is one connection. Its fields are guarded by the tap's mutex.
type wire struct {
	tap      *Tap
	number   int
	sessions [2]map[uint16]*session // by the channel on which a side sends
	closing  bool                   // a side sent a close frame
	failed   bool                   // the service said internal-error
	ended    bool                   // one direction has been read to its end
}

// A session has what each side said in it.
type session struct {
	links      [2]map[uint32]*link     // by the handle that a side gave it
	deliveries [2]map[uint32]*Delivery // by the number that the side that sent it gave it
}

type link struct {
	name, address string
	open          *Delivery // has more to come
}

// copy passes on what from says. Each frame is written down before it goes on, so that an answer is
// never read before what it answers.
func (w *wire) copy(d direction, to io.Writer, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	if begin, err := in.Peek(4); err == nil && string(begin) != "AMQP" {
		_, err := io.Copy(to, in)
		return err
	}
	for {
		raw, err := readFrame(in)
		if err != nil {
			if ended(err) {
				return nil
			}
			return err
		}
		if raw[0] != 'A' && raw[5] == amqp.FrameAMQP {
			if err := w.note(d, raw); err != nil {
				return err
			}
		}
		if _, err := to.Write(raw); err != nil {
			return err
		}
	}
}

// readFrame reads a frame, or a header of the protocol.
func readFrame(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(amqp.FrameHeaderSize)
	if err != nil {
		return nil, err
	}
	size := uint32(len(head))
	if head[0] != 'A' {
		if size = binary.BigEndian.Uint32(head); size < amqp.FrameHeaderSize || size > maxFrame {
			return nil, fmt.Errorf("%w: a frame of %d bytes, which begins with % x", errNotAMQP, size, head)
		}
	}
	raw := make([]byte, size)
	_, err = io.ReadFull(in, raw)
	return raw, err
}

// saysInternalError reports whether p ends a link, a session or the connection with internal-error.
func saysInternalError(p amqp.Performative) bool {
	var err *amqp.Error
	switch p := p.(type) {
	case *amqp.Detach:
		err = p.Error
	case *amqp.End:
		err = p.Error
	case *amqp.Close:
		err = p.Error
	}
	return err != nil && err.Condition == amqp.ErrCondInternalError
}

// note writes down what a frame says of sessions, links and deliveries.
func (w *wire) note(d direction, raw []byte) error {
	body := raw[4*int(raw[4]):]
	if len(body) == 0 {
		return nil
	}
	p, payload, err := amqp.DecodePerformative(body)
	if err != nil {
		return err
	}
	ch := binary.BigEndian.Uint16(raw[6:])
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	if d == fromService && !w.failed && saysInternalError(p) {
		w.failed = true
		w.tap.failures++
	}
	switch p := p.(type) {
	case *amqp.Begin:
		w.begin(d, ch, p)
		return nil
	case *amqp.Close:
		w.closing = true
		return nil
	}
	s := w.sessions[d][ch]
	if s == nil {
		return nil // open, or what follows an end
	}
	switch p := p.(type) {
	case *amqp.Attach:
		s.links[d][p.Handle] = &link{name: p.Name, address: address(d, p)}
	case *amqp.Transfer:
		if l := s.links[d][p.Handle]; l != nil {
			w.transfer(d, s, l, p, payload)
		}
	case *amqp.Disposition:
		s.disposition(d, p)
	case *amqp.Detach:
		delete(s.links[d], p.Handle)
	case *amqp.End:
		delete(w.sessions[d], ch)
	}
	return nil
}

func (w *wire) begin(d direction, ch uint16, b *amqp.Begin) {
	var s *session
	if b.HasRemoteChannel {
		s = w.sessions[d.other()][b.RemoteChannel]
	}
	if s == nil {
		s = &session{}
		for i := range s.links {
			s.links[i], s.deliveries[i] = map[uint32]*link{}, map[uint32]*Delivery{}
		}
	}
	if w.sessions[d] == nil {
		w.sessions[d] = map[uint16]*session{}
	}
	w.sessions[d][ch] = s
}

// address is that of the node at the service's end.
func address(d direction, a *amqp.Attach) string {
	serviceReceives := (d == fromClient) == (a.Role == amqp.RoleSender)
	switch {
	case serviceReceives && a.Target != nil:
		return a.Target.Address
	case !serviceReceives && a.Source != nil:
		return a.Source.Address
	}
	return ""
}

func (w *wire) transfer(d direction, s *session, l *link, p *amqp.Transfer, payload []byte) {
	one := l.open
	if one == nil {
		one = &Delivery{
			Conn: w.number, Link: l.name, Address: l.address, FromClient: d == fromClient,
			Tag: append([]byte{}, p.DeliveryTag...), Format: p.MessageFormat,
		}
		s.deliveries[d][p.DeliveryID] = one
		w.tap.deliveries = append(w.tap.deliveries, one)
	}
	one.Frames++
	one.Payload = append(one.Payload, payload...)
	one.Settled = one.Settled || p.Settled
	one.Done = one.Done || p.Settled
	one.Aborted = p.Aborted
	if l.open = one; !p.More || p.Aborted {
		l.open, one.Complete = nil, !p.Aborted
	}
}

// disposition notes the states that receivers give; those of senders only end the delivery.
func (s *session) disposition(d direction, p *amqp.Disposition) {
	sender := d.other()
	if p.Role == amqp.RoleSender {
		sender = d
	}
	for id := p.First; ; id++ {
		if one := s.deliveries[sender][id]; one != nil {
			if p.State != nil && p.Role == amqp.RoleReceiver {
				one.Outcome = outcome(p.State)
			}
			if one.Done = one.Done || p.Settled; p.Settled {
				delete(s.deliveries[sender], id)
			}
		}
		if id == p.Last {
			return
		}
	}
}

// outcome is a state in words, with what it says of itself.
func outcome(state amqp.DeliveryState) string {
	_, text, _ := strings.Cut(amqp.Trace(&amqp.Disposition{Role: amqp.RoleReceiver, State: state}, 0), " state=")
	return text
}
