// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/connect"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

// attachTimeout bounds one attempt: dial, TLS, sign-in and attach.
const attachTimeout = 15 * time.Second

// upstream knows whether all monitor queues can be written. It tries until they can, and
// tries again when somebody doubts.
type upstream struct {
	ns     *connect.Namespace
	dial   func(context.Context) (net.Conn, error) // of ns
	links  *link.Namespace
	queues []string // the monitor queues
	log    *zap.Logger
	doubt  wakeup // somebody saw a write fail, and asks for another check
	up     wakeup // whenever it has been attached
	goesOn bool   // sends go through meanwhile
	// tryWrite writes something to a monitor queue and takes it off again.
	tryWrite func(ctx context.Context, queue string) error

	mu       sync.Mutex
	err      error     // why it is not attached; nil when it is
	reached  bool      // the namespace answered the last time
	fullness error     // of a write that was refused because a queue is full; nil once one is accepted
	proof    time.Time // when something was last accepted, or answered
}

const (
	// While nothing is written, the namespace is asked at this interval, a little early or late, and
	// has that long to answer. So its absence is known within 30 s. The question is a link on the
	// connection that stands, which is no billed operation.
	probeInterval = 15 * time.Second
	probeTimeout  = 10 * time.Second
)

// fullInterval is how long a process waits between two trial writes to a queue that is full. Each is
// three operations.
const fullInterval = 10 * time.Second

// remindEvery is how often an outage that lasts is logged.
const remindEvery = time.Minute

// errNotTried is the state before the first answer.
var errNotTried = &adminport.Failure{Reason: adminport.Starting, Err: errors.New("not reached yet")}

// notReceiving names the monitor queues whose link is not open. The namespace answers before
// these links open, so until then this is errNotTried: a process that starts waits for them.
type notReceiving []string

func (queues notReceiving) Error() string {
	return "the monitor does not receive from " + strings.Join(queues, ", ")
}

// Is makes it errNotTried.
func (notReceiving) Is(target error) bool { return target == error(errNotTried) }

func newUpstream(ns *connect.Namespace, links *link.Namespace, queues []string, log *zap.Logger) *upstream {
	return &upstream{
		ns:     ns,
		dial:   ns.Open,
		links:  links,
		queues: queues,
		log:    log.With(zap.String("monitor_queue", strings.Join(queues, ", "))),
		doubt:  newWakeup(),
		up:     newWakeup(),
		err:    errNotTried,
	}
}

// attached is a readiness check.
func (u *upstream) attached(context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// set notes the outcome of an attempt or a probe.
func (u *upstream) set(event string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err, u.reached = err, event != eventUnreachable
	if err == nil {
		u.proof, u.fullness = time.Now(), nil
	}
}

// answers reports whether the namespace answered the last time, whatever it said.
func (u *upstream) answers() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reached
}

// written notes that the monitor queue has taken companions: the next probe can wait.
func (u *upstream) written() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.proof = time.Now()
}

// doubtAfter has the state checked again, because a write has failed. A link to a queue that is full
// opens: from then on a trial write has to show that it takes something.
func (u *upstream) doubtAfter(err error) {
	if isFull(err) {
		u.mu.Lock()
		u.fullness = err
		u.mu.Unlock()
	}
	u.doubt.signal()
}

// isFull reports whether a queue has refused a message because it is full.
func isFull(err error) bool {
	return amqp.ErrCond(link.Condition(err)) == amqp.ErrCondResourceLimitExceeded
}

// isDoubtful reports whether a trial write has to show that the queues are not full any more.
func (u *upstream) isDoubtful() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fullness != nil
}

// lastProof returns when something was last accepted, or answered; now, if nothing ever was.
func (u *upstream) lastProof() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.proof.IsZero() {
		return time.Now()
	}
	return u.proof
}

// run keeps the state until ctx ends. No answer of the namespace about the monitor queue ends a
// process. Work that needs no companion goes on without the queue, and a missing queue may come
// back, as rights may.
func (u *upstream) run(ctx context.Context) error {
	for ctx.Err() == nil {
		u.attach(ctx)
		u.awaitDoubt(ctx)
	}
	return nil
}

// awaitDoubt returns when somebody doubts, or the monitor queue does not answer a probe. Nothing
// else would show a process without traffic that the namespace is gone.
func (u *upstream) awaitDoubt(ctx context.Context) {
	for {
		interval := time.Duration(float64(probeInterval) * (0.9 + 0.2*rand.Float64()))
		for remaining := interval; remaining > 0; remaining = interval - time.Since(u.lastProof()) {
			select {
			case <-u.doubt:
				return
			case <-time.After(remaining):
			case <-ctx.Done():
				return
			}
		}
		probing, cancel := context.WithTimeout(ctx, probeTimeout)
		event, err := u.attachQueues(probing)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if u.set(event, err); err != nil {
			return
		}
	}
}

// attach tries until the monitor queue takes messages, or ctx ends.
func (u *upstream) attach(ctx context.Context) {
	wait := newBackOff(200*time.Millisecond, 5*time.Second)
	logged, at := "", time.Time{}
	for {
		event, err := u.try(ctx)
		if ctx.Err() != nil {
			return
		}
		news := u.attached(ctx) != nil // unless somebody doubted for nothing, or too late
		u.set(event, err)
		if err == nil {
			if news {
				u.log.Info("namespace attached", zap.String("namespace", u.ns.Host))
			}
			u.up.signal()
			return
		}
		if logged != event || time.Since(at) >= remindEvery {
			logged, at = event, time.Now()
			u.log.Warn(event, zap.String("namespace", u.ns.Host), zap.Error(err),
				zap.String("next", u.next()))
		}
		pause := wait.NextBackOff()
		if adminport.ReasonOf(err) == adminport.MonitorQueueFull {
			pause += fullInterval
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// next is what comes after a failure.
func (u *upstream) next() string {
	if u.goesOn && u.answers() {
		return "Overdue keeps trying; until it succeeds, companions go to the journal"
	}
	return "Overdue keeps trying; until it succeeds, /readyz says 503 and sends with a deadline are refused"
}

// Events of an attempt that fails, as the log has them.
const (
	eventUnreachable = "namespace unreachable"
	eventNoQueue     = "monitor queue unavailable"
)

// try makes one attempt. Its errors are sentences, and event says which kind they are of. Dialling first tells a network that is
// down from a namespace that refuses.
func (u *upstream) try(ctx context.Context) (event string, err error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	if err := u.reachable(ctx); err != nil {
		return eventUnreachable, err
	}
	return u.attachQueues(ctx)
}

// attachQueues opens a link to each monitor queue, and writes to it where that is in doubt.
func (u *upstream) attachQueues(ctx context.Context) (event string, err error) {
	for _, queue := range u.queues {
		l, err := u.links.Sender(ctx, queue) // as the companions go
		if err == nil {
			l.Close(ctx)
			if u.isDoubtful() {
				err = u.tryWrite(ctx, queue)
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return eventUnreachable, down(fmt.Errorf("the queue %q of %s does not answer", queue, u.ns.Host))
		case link.Lost(err):
			return eventUnreachable, down(explain(err, u.ns.Host, queue))
		default:
			return eventNoQueue, explain(err, u.ns.Host, queue)
		}
	}
	return "", nil
}

// outbound is the outbound check: a connection can be opened, and what is known of the namespace
// says nothing else. One that hangs accepts connections.
func (u *upstream) outbound(ctx context.Context) error {
	if err := u.reachable(ctx); err != nil {
		return err
	}
	if err := u.attached(ctx); !errors.Is(err, errNotTried) {
		return err
	}
	return nil
}

// reachable says whether a connection can be opened at all.
func (u *upstream) reachable(ctx context.Context) error {
	c, err := u.dial(ctx)
	if certificate, renew := failure.Certificate(err); certificate != "" {
		return down(fmt.Errorf("the namespace %s cannot be reached: %s; %s", u.ns.Host, certificate, renew))
	}
	if err != nil {
		return down(fmt.Errorf("the namespace %s cannot be reached: %w; check the setting namespace and the network", u.ns.Host, err))
	}
	_ = c.Close() // it was opened for the asking
	return nil
}

// down is an error of the connection, whatever else it says.
func down(err error) error { return &adminport.Failure{Reason: adminport.NamespaceDown, Err: err} }

// explain makes a sentence of what the namespace said about its queue, with the reason that metrics
// and alerts have for it.
func explain(err error, host, queue string) error {
	if err == nil {
		return nil
	}
	said, condition := plainly(err), amqp.ErrCond(link.Condition(err))
	f := &adminport.Failure{Reason: adminport.Other}
	switch {
	case condition == amqp.ErrCondNotFound:
		f.Reason = adminport.MonitorQueueMissing
		f.Err = fmt.Errorf("the namespace %s has no queue %q; create it (lock duration 10 seconds, "+
			"max delivery count 2000), or name another with monitorQueue", host, queue)
	case link.Unauthorized(err):
		f.Reason = adminport.KeyRefused
		f.Err = fmt.Errorf("the namespace %s refuses access to the queue %q: %s; "+
			"give the key or the identity the Send and Listen rights", host, queue, said)
	case connect.SignInFailed(err):
		f.Reason = adminport.KeyRefused
		f.Err = fmt.Errorf("signing in to %s failed: %w", host, err)
	case isFull(err):
		f.Reason = adminport.MonitorQueueFull
		f.Err = fmt.Errorf("the queue %q of %s is full: %s; let a monitor receive from it, or make it larger", queue, host, said)
	default:
		f.Err = fmt.Errorf("the queue %q of %s cannot be written: %s", queue, host, said)
	}
	return f
}

// plainly is what the broker says in err, where it says something, and err otherwise.
func plainly(err error) string {
	if remote := (*amqp.Error)(nil); errors.As(err, &remote) {
		return fmt.Sprintf("%s (%s)", failure.Reason(err), remote.Condition)
	}
	return failure.Reason(err)
}

// newBackOff grows by half each time, with jitter, and never ends by itself.
func newBackOff(first, longest time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, longest
	return b
}
