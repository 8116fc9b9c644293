// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
)

// Operation says what a Fault happens to.
type Operation string

// Operations that a test can make fail.
const (
	OnAttach     Operation = "attach"     // a link is opened
	OnSend       Operation = "send"       // a client sends a message or a batch
	OnReceive    Operation = "receive"    // a message is about to be sent to a client
	OnSettle     Operation = "settle"     // a client settles over the link
	OnManagement Operation = "management" // a request on $management
	OnToken      Operation = "token"      // a put-token on $cbs

	// OnRequest is one over HTTP, which no Fault hits.
	OnRequest Operation = "request"
)

// A Fault makes a namespace fail on purpose, so that a test sees what its
// client does then. It hits the operations that its first fields name.
//
// A throttled namespace is Fault{Operation: OnSend, Error: ServerBusy()}, a full
// queue Fault{Entity: "q", Operation: OnSend, Error: EntityFull()}, an
// acknowledgement that gets lost Fault{Operation: OnSend, Silent: true, Times: 1}.
type Fault struct {
	// Entity is the path of a queue, a topic or a subscription; empty: every one.
	Entity string
	// Operation is empty for every one.
	Operation Operation
	// Request is what is asked for OnManagement, such as
	// com.microsoft:peek-message; empty: everything.
	Request string
	// After is how many operations this fault lets pass first.
	After int
	// Times is how many are hit; 0: all, until the fault is removed.
	Times int

	// Delay comes before whatever else happens. Later operations of the same
	// connection that are not hit do not wait for it.
	Delay time.Duration
	// Error refuses the operation. A delivery cannot be refused: OnReceive its
	// link is detached.
	Error *amqp.Error
	// Detach detaches the link, with Error, instead.
	Detach bool
	// Cut cuts the connection without a word, before anything is done.
	Cut bool
	// Silent does the operation and never says so; OnAttach it merely does not
	// answer.
	Silent bool
}

// ServerBusy is how the service refuses when it throttles. Clients try again.
func ServerBusy() *amqp.Error {
	return amqp.Errorf(condServerBusy, "The request was terminated because the namespace is being throttled. Error code : 50009. Please wait 2 seconds and try again.")
}

// EntityFull is how the service refuses a send to an entity that is full.
func EntityFull() *amqp.Error {
	return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The maximum entity size has been reached or exceeded.")
}

// Inject makes the namespace suffer f from now on. remove ends it. Faults are
// tried in the order in which they were injected; the first that hits counts.
func (n *Namespace) Inject(f Fault) (remove func()) {
	one := &injected{Fault: f, left: f.Times, pass: f.After}
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.all = append(n.faults.all, one)
	n.faults.some.Store(true)
	return func() { n.faults.remove(one) }
}

// Heal removes every fault.
func (n *Namespace) Heal() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.all = nil
	n.faults.some.Store(false)
}

// faults are those of one namespace.
type faults struct {
	some atomic.Bool // whether there are any: all that is looked at when there are none
	mu   sync.Mutex
	all  []*injected
}

type injected struct {
	Fault
	pass, left int // of After and Times
}

func (fs *faults) remove(f *injected) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, o := range fs.all {
		if o == f {
			fs.all = append(fs.all[:i:i], fs.all[i+1:]...)
			break
		}
	}
	fs.some.Store(len(fs.all) > 0)
}

// hit returns what an operation suffers, nil for nothing.
func (fs *faults) hit(op Operation, path, request string) *Fault {
	if !fs.some.Load() {
		return nil
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.all {
		switch {
		case f.Entity != "" && key(f.Entity) != key(path),
			f.Operation != "" && f.Operation != op,
			f.Request != "" && f.Request != request,
			f.Times > 0 && f.left == 0:
			continue
		case f.pass > 0:
			f.pass--
			continue
		}
		f.left--
		return &f.Fault
	}
	return nil
}

// suffer carries f out, on the link that it hits. do is called unless the
// connection is cut or the link detached: with the error that refuses the
// operation, or nil; after a delay from another goroutine.
func (c *conn) suffer(f *Fault, link detacher, do func(refusal *amqp.Error)) {
	happen := func() {
		switch {
		case f.Cut:
			c.peer.Cut()
		case f.Detach:
			link.Detach(f.Error)
		default:
			do(f.Error)
		}
	}
	if f.Delay <= 0 {
		happen()
		return
	}
	c.late.after(f.Delay, happen)
}

// pause waits for Delay. It reports false when the link ends meanwhile.
func (f *Fault) pause(link *server.SourceLink) bool {
	if f.Delay <= 0 {
		return true
	}
	t := time.NewTimer(f.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-link.Done():
		return false
	}
}

// A refuser is a link that is about to be opened.
type refuser interface {
	server.Link
	Refuse(*amqp.Error)
}

// sufferAttach is suffer for a link that is about to be opened. H is a Sink or
// a Source.
func sufferAttach[H interface{ Detached(*amqp.Error) }](c *conn, f *Fault, link refuser, accept func(H) bool,
	attach func() (H, *amqp.Error)) (H, *amqp.Error) {
	var deferred H
	refusal := f.Error
	if refusal == nil && f.Detach {
		refusal = errForced(link)
	}
	if f.Delay > 0 {
		c.late.after(f.Delay, func() {
			h, err := deferred, refusal
			switch {
			case f.Cut:
				c.peer.Cut()
				return
			case err == nil && f.Silent:
				return
			case err == nil:
				h, err = attach()
			}
			if any(h) != nil || err != nil {
				c.noteAttach(link.Attach(), err)
			}
			switch {
			case err != nil:
				link.Refuse(c.tracked(err, link.Attach()))
			case any(h) != nil && !accept(h):
				h.Detached(nil) // its client has gone meanwhile
			}
		})
		return deferred, nil
	}
	switch {
	case f.Cut:
		c.peer.Cut()
		return deferred, nil // nobody is there to hear an answer
	case refusal != nil:
		return deferred, refusal
	case f.Silent:
		return deferred, nil
	}
	return attach()
}

// late does things later, in the order in which they were asked for where that
// is the order of their times. It ends with its connection.
type late struct {
	mu    sync.Mutex
	queue []lateCall
	timer *time.Timer
	busy  bool // run is at work, and sets the next timer
	over  bool
	idle  chan struct{} // closed when run has ended; made by close
}

type lateCall struct {
	at time.Time
	do func()
}

func (l *late) after(d time.Duration, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	c := lateCall{time.Now().Add(d), do}
	i := len(l.queue)
	for i > 0 && l.queue[i-1].at.After(c.at) {
		i--
	}
	l.queue = append(l.queue[:i:i], append([]lateCall{c}, l.queue[i:]...)...)
	if i == 0 && !l.busy {
		l.armLocked()
	}
}

func (l *late) armLocked() {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = time.AfterFunc(time.Until(l.queue[0].at), l.run)
}

// run does what is due.
func (l *late) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = true
	for !l.over && len(l.queue) > 0 && !l.queue[0].at.After(time.Now()) {
		c := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		c.do()
		l.mu.Lock()
	}
	l.busy = false
	switch {
	case l.idle != nil:
		close(l.idle)
	case len(l.queue) > 0:
		l.armLocked()
	}
}

// close drops what is not due yet, and waits for what is being done. That may open a link, whose
// goroutine the broker has to know before it waits for all.
func (l *late) close() {
	l.mu.Lock()
	l.over, l.queue = true, nil
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.busy {
		l.idle = make(chan struct{})
	}
	l.mu.Unlock()
	if l.idle != nil {
		<-l.idle
	}
}
