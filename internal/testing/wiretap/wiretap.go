// SPDX-License-Identifier: Apache-2.0

// Package wiretap stands between an AMQP client and what it connects to, changes nothing, and
// keeps every delivery as the bytes that went by. With one tap before a relay and one behind
// it a test can say what the relay did to them.
package wiretap

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"overdue/internal/amqp"
)

// A Tap takes connections and passes each on to one of its own. A connection without AMQP in its
// first bytes passes, too, and leaves no record. Safe for concurrent use.
type Tap struct {
	Addr string // where it listens

	dial func(context.Context) (net.Conn, error)

	mu         sync.Mutex
	conns      map[net.Conn]bool // both ends of each
	count      int               // of connections so far
	failures   int               // of the service, see Failures
	deliveries []*Delivery
	broken     []error // what was no AMQP
	done       sync.WaitGroup
}

// A Delivery is one that went by.
type Delivery struct {
	Conn       int    // the number of its connection, from 0 on
	Link       string // name
	Address    string // of the link's node: the target of a client that sends, the source of one that receives
	FromClient bool

	Tag      []byte
	Format   uint32
	Settled  bool // by its sender, as it was sent
	Payload  []byte
	Frames   int
	Complete bool
	Aborted  bool

	Outcome string // the last state that its receiver gave it; "" = none
	Done    bool   // settled by either
}

// Start listens on a free port of loopback and passes on what comes to the address to. It
// ends with the test.
func Start(t testing.TB, to string) *Tap {
	t.Helper()
	return StartDialing(t, func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to) })
}

// StartDialing is Start for what is not at an address.
func StartDialing(t testing.TB, dial func(context.Context) (net.Conn, error)) *Tap {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tap := &Tap{Addr: ln.Addr().String(), dial: dial, conns: map[net.Conn]bool{}}
	tap.done.Go(func() { tap.accept(ln) })
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Errorf("closing the tap: %v", err)
		}
		tap.Cut()
		tap.done.Wait()
		for _, err := range tap.broken {
			t.Errorf("the tap at %s: %v", tap.Addr, err)
		}
	})
	return tap
}

// Cut closes every connection.
func (t *Tap) Cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		_ = c.Close() // it is meant to end, and its copier ignores the error too
	}
	clear(t.conns)
}

func (t *Tap) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return // closed
		}
		service, err := t.dial(context.Background())
		if err != nil {
			_ = client.Close() // which shows the client as much as its own dial would
			continue
		}
		t.mu.Lock()
		t.conns[client], t.conns[service] = true, true
		w := &wire{tap: t, number: t.count}
		t.count++
		t.mu.Unlock()
		t.done.Go(func() { t.carry(w, fromClient, service, client) })
		t.done.Go(func() { t.carry(w, fromService, client, service) })
	}
}

// carry copies until one side ends, and then ends the other.
func (t *Tap) carry(w *wire, d direction, to, from net.Conn) {
	err := w.copy(d, to, from)
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = to.Close()
	_ = from.Close()
	cut := !t.conns[from]
	delete(t.conns, to)
	delete(t.conns, from)
	if d == fromService && !w.ended && !w.closing && !w.failed && !cut {
		t.failures++
	}
	w.ended = true
	if errors.Is(err, errNotAMQP) || errors.Is(err, amqp.ErrMalformed) {
		t.broken = append(t.broken, err)
	}
}

// Failures counts the connections that the service ended first, without a close frame, or on which
// it said internal-error, of a link, of a session or of all.
func (t *Tap) Failures() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}

// Deliveries returns copies of the deliveries so far, by the address of their links: first those
// from an address, then those to it. Within these they are by link, in the order of their first
// deliveries. Those of links to $cbs, which are each hop's own affair, are left out.
func (t *Tap) Deliveries() []Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	type link struct {
		address    string
		fromClient bool
		name       string
	}
	of := func(d Delivery) link { return link{d.Address, d.FromClient, d.Link} }
	out := make([]Delivery, 0, len(t.deliveries))
	rank := map[link]int{}
	for _, d := range t.deliveries {
		if named(d.Address, "$cbs") {
			continue
		}
		if _, seen := rank[of(*d)]; !seen {
			rank[of(*d)] = len(rank)
		}
		out = append(out, *d)
		out[len(out)-1].Payload = slices.Clone(d.Payload)
	}
	slices.SortStableFunc(out, func(a, b Delivery) int {
		switch {
		case a.Address != b.Address:
			return strings.Compare(a.Address, b.Address)
		case a.FromClient != b.FromClient && a.FromClient:
			return 1
		case a.FromClient != b.FromClient:
			return -1
		}
		return rank[of(a)] - rank[of(b)]
	})
	return out
}

// Sent returns the complete deliveries that clients sent to an address, in their order.
func (t *Tap) Sent(address string) []Delivery { return t.completeDeliveries(address, true) }

// Received returns the complete deliveries that clients got from an address, in their order.
func (t *Tap) Received(address string) []Delivery { return t.completeDeliveries(address, false) }

func (t *Tap) completeDeliveries(address string, sent bool) []Delivery {
	return slices.DeleteFunc(t.Deliveries(), func(d Delivery) bool {
		return d.FromClient != sent || !d.Complete || !named(d.Address, address)
	})
}

// named reports whether an address, which may be a URL, is that of a node.
func named(address, node string) bool {
	rest, ok := strings.CutSuffix(strings.ToLower(address), strings.ToLower(node))
	return ok && (rest == "" || strings.HasSuffix(rest, "/") && strings.Contains(rest, "://"))
}

// Difference says what differs between what two taps have, link by link and in order; "" = nothing.
// How many connections and frames it took is each hop's own affair.
func Difference(a, b []Delivery) string {
	for i := range min(len(a), len(b)) {
		if x, y := a[i].text(), b[i].text(); x != y {
			return fmt.Sprintf("of %d and %d deliveries number %d is the first that differs:\n- %.4000s\n+ %.4000s", len(a), len(b), i, x, y)
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d deliveries here, %d there", len(a), len(b))
	}
	return ""
}

func (d Delivery) text() string {
	d.Conn, d.Frames = 0, 0
	payload := d.Payload
	d.Payload = nil
	return fmt.Sprintf("%+v, payload %q", d, payload)
}

// ended reports whether err is how connections end.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

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
