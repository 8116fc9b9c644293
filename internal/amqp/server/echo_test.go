// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
)

// echo is a handler with queues in memory: what is sent to an address is received from it. Some
// addresses are special:
//
//	refuse…  links are refused with amqp:not-found
//	defer…   the answer to an attach comes a second later
//	hold…    sent messages are not settled until the test does it; "hold two" takes two of them
//	sink…    sent messages are accepted and dropped
type echo struct {
	mu     sync.Mutex
	queues map[string]*echoQueue
	log    []string // what became of the links and connections, in order
	came   []*Delivery
	wg     sync.WaitGroup
}

type echoQueue struct {
	mu       sync.Mutex
	cond     *sync.Cond
	messages [][]byte
	outcomes []string
	nextTag  int
}

func (e *echo) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log = append(e.log, fmt.Sprintf(format, args...))
}

func (e *echo) notes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.log...)
}

func (e *echo) takeDeliveries() []*Delivery {
	e.mu.Lock()
	defer e.mu.Unlock()
	came := e.came
	e.came = nil
	return came
}

func (e *echo) queue(address string) *echoQueue {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queues[address]
	if q == nil {
		q = &echoQueue{}
		q.cond = sync.NewCond(&q.mu)
		if e.queues == nil {
			e.queues = make(map[string]*echoQueue)
		}
		e.queues[address] = q
	}
	return q
}

func (q *echoQueue) states() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]string(nil), q.outcomes...)
}

func (q *echoQueue) put(payload []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = append(q.messages, payload)
	q.cond.Broadcast()
}

func (e *echo) Connect(c *Conn) (ConnHandler, *amqp.Error) {
	if c.Hostname() == "forbidden" {
		return nil, amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "Not you.")
	}
	return &echoConn{e, c}, nil
}

type echoConn struct {
	*echo
	c *Conn
}

func (e *echoConn) Closed(err error) { e.note("closed: %v", err) }

func has(address, prefix string) bool {
	return len(address) >= len(prefix) && address[:len(prefix)] == prefix
}

func (e *echoConn) AttachSink(l *SinkLink) (Sink, *amqp.Error) {
	if l.Attach().Target == nil {
		return nil, amqp.Errorf(amqp.ErrCondInvalidField, "No target.")
	}
	address := l.Attach().Target.Address
	if has(address, "refuse") {
		return nil, amqp.Errorf(amqp.ErrCondNotFound, "There is no %s.", address)
	}
	if address == "hold two" {
		l.Reply.Credit = 2
	}
	s := &echoSink{echo: e.echo, l: l, address: address, q: e.queue(address)}
	if has(address, "defer") {
		e.wg.Go(func() {
			select {
			case <-time.After(time.Second):
				e.note("accepted %s: %v", address, l.Accept(s))
			case <-l.Done():
				e.note("gave up %s", address)
			}
		})
		return nil, nil
	}
	return s, nil
}

type echoSink struct {
	*echo
	l       *SinkLink
	address string
	q       *echoQueue
}

func (s *echoSink) Deliver(d *Delivery) {
	switch {
	case has(s.address, "hold"):
		s.mu.Lock()
		s.came = append(s.came, d)
		s.mu.Unlock()
		return
	case !has(s.address, "sink"):
		s.q.put(d.Payload)
	}
	s.l.Settle(d, amqp.Accepted{})
}

func (s *echoSink) Detached(err *amqp.Error) { s.note("sink %s: %v", s.address, cond(err)) }

func cond(e *amqp.Error) string {
	if e == nil {
		return "-"
	}
	return string(e.Condition)
}

func (e *echoConn) AttachSource(l *SourceLink) (Source, *amqp.Error) {
	if l.Attach().Source == nil {
		return nil, amqp.Errorf(amqp.ErrCondInvalidField, "No source.")
	}
	address := l.Attach().Source.Address
	if has(address, "refuse") {
		return nil, amqp.Errorf(amqp.ErrCondNotFound, "There is no %s.", address)
	}
	s := &echoSource{echo: e.echo, l: l, address: address, q: e.queue(address)}
	if has(address, "defer") {
		e.wg.Go(func() {
			select {
			case <-time.After(time.Second):
				if l.Accept(s) {
					e.wg.Go(s.run)
				}
			case <-l.Done():
				e.note("gave up %s", address)
			}
		})
		return nil, nil
	}
	e.wg.Go(s.run)
	return s, nil
}

type echoSource struct {
	*echo
	l       *SourceLink
	address string
	q       *echoQueue
	credit  int64 // the following are guarded by q.mu
	drain   bool
	gone    bool
}

func (s *echoSource) run() {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for !s.gone {
		switch {
		case s.credit > 0 && len(q.messages) > 0:
			m := q.messages[0]
			q.messages = q.messages[1:]
			s.credit--
			q.nextTag++
			o := Outgoing{Tag: fmt.Appendf(nil, "t%d", q.nextTag), Payload: m, Token: m, Settled: s.l.Attach().SndSettleMode == amqp.SndSettled}
			q.mu.Unlock()
			_, err := s.l.SendOut(o)
			q.mu.Lock()
			if err != nil {
				q.messages = append([][]byte{m}, q.messages...)
				if !errors.Is(err, ErrNoCredit) {
					return
				}
			}
		case s.drain:
			s.drain = false
			s.credit = 0
			q.mu.Unlock()
			s.l.Drained()
			q.mu.Lock()
		default:
			q.cond.Wait()
		}
	}
}

func (s *echoSource) Flow(f Flow) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.credit += f.Added
	s.drain = f.Drain
	s.q.cond.Broadcast()
}

func (s *echoSource) Disposition(ds []*Outgone, st amqp.DeliveryState, settled bool) {
	s.q.mu.Lock()
	for _, o := range ds {
		s.q.outcomes = append(s.q.outcomes, fmt.Sprintf("%T %v", st, settled))
		switch st.(type) {
		case amqp.Released, *amqp.Modified:
			s.q.messages = append([][]byte{o.Token.([]byte)}, s.q.messages...)
			s.q.cond.Broadcast()
		}
	}
	s.q.mu.Unlock()
	if !settled {
		s.l.Settle(ds, st)
	}
}

func (s *echoSource) Detached(err *amqp.Error) {
	s.q.mu.Lock()
	s.gone = true
	s.q.cond.Broadcast()
	s.q.mu.Unlock()
	s.note("source %s: %v", s.address, cond(err))
}

// A scene is a server with an echo handler. In a bubble, dial uses pipes.
type scene struct {
	t     testing.TB
	echo  *echo
	srv   *Server
	errs  chan error // why connections ended
	serve sync.WaitGroup
}

func setup(t testing.TB, change ...func(*Config)) *scene {
	t.Helper()
	sc := &scene{t: t, echo: &echo{}, errs: make(chan error, 1000)}
	cfg := Config{Handler: sc.echo, Mechanisms: []amqp.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}, SASLWelcome: "Welcome!"}
	for _, f := range change {
		f(&cfg)
	}
	sc.srv = New(cfg)
	t.Cleanup(func() {
		if err := sc.srv.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
		sc.serve.Wait()
		sc.echo.wg.Wait()
	})
	return sc
}

// pipe connects to the server in memory.
func (sc *scene) pipe() net.Conn {
	client, server := net.Pipe()
	sc.serve.Go(func() { sc.errs <- sc.srv.ServeConn(server) })
	sc.t.Cleanup(func() { client.Close() })
	return client
}

// dial connects a go-amqp client over nc, or a pipe if nc is nil.
func (sc *scene) dial(nc net.Conn, opts *goamqp.ConnOptions) *goamqp.Conn {
	sc.t.Helper()
	if nc == nil {
		nc = sc.pipe()
	}
	if opts == nil {
		opts = &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()}
	}
	conn, err := goamqp.NewConn(context.Background(), nc, opts)
	if err != nil {
		sc.t.Fatalf("NewConn: %v", err)
	}
	sc.t.Cleanup(func() { conn.Close() }) // may have ended otherwise
	return conn
}

// listen serves TCP on loopback and returns the address.
func (sc *scene) listen() string {
	sc.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		sc.t.Fatalf("Listen: %v", err)
	}
	sc.serve.Go(func() {
		if err := sc.srv.Serve(ln); !errors.Is(err, ErrServerClosed) {
			sc.t.Errorf("Serve = %v, want ErrServerClosed", err)
		}
	})
	return ln.Addr().String()
}

func (sc *scene) dialTCP(address string) *goamqp.Conn {
	sc.t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		sc.t.Fatalf("Dial: %v", err)
	}
	return sc.dial(nc, nil)
}

func session(t testing.TB, conn *goamqp.Conn) *goamqp.Session {
	t.Helper()
	s, err := conn.NewSession(context.Background(), nil)
	if err != nil {
		t.Fatalf("NewSession: %v", err)
	}
	return s
}

// bubble runs f in a bubble with a fresh scene; that no goroutine is left behind is what the
// bubble's end checks.
func bubble(t *testing.T, f func(t *testing.T, sc *scene), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, setup(t, change...)) })
}

// both runs f over a pipe in a bubble and over TCP.
func both(t *testing.T, f func(t *testing.T, sc *scene, dial func() *goamqp.Conn)) {
	t.Run("pipe", func(t *testing.T) {
		bubble(t, func(t *testing.T, sc *scene) { f(t, sc, func() *goamqp.Conn { return sc.dial(nil, nil) }) })
	})
	t.Run("tcp", func(t *testing.T) {
		sc := setup(t)
		address := sc.listen()
		f(t, sc, func() *goamqp.Conn { return sc.dialTCP(address) })
	})
}
