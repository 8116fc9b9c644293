// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"overdue/internal/connect"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/sdk"
)

// attachTimeout bounds one attempt: dial, TLS, sign-in and attach.
const attachTimeout = 15 * time.Second

// upstream knows whether all monitor queues can be written. It tries until they can, and
// tries again when somebody doubts.
type upstream struct {
	ns     *connect.Namespace
	client *sdk.Client
	queues []string // the monitor queues
	log    *zap.Logger
	doubt  chan struct{} // somebody saw a write fail
	up     chan struct{} // gets a value whenever it has been attached
	goesOn bool          // sends go through meanwhile

	mu      sync.Mutex
	err     error // why it is not attached; nil when it is
	reached bool  // the namespace has answered once
}

// remindEvery is how often an outage that lasts is logged.
const remindEvery = time.Minute

// errNotTried is the state before the first answer.
var errNotTried = errors.New("not reached yet")

// notReceiving names the monitor queues whose link is not open. The namespace answers before
// these links open, so until then this is errNotTried: a process that starts waits for them.
type notReceiving []string

func (queues notReceiving) Error() string {
	return fmt.Sprintf("the monitor does not receive from %q", []string(queues))
}

func (notReceiving) Is(target error) bool { return target == errNotTried }

func newUpstream(ns *connect.Namespace, client *sdk.Client, queues []string, log *zap.Logger) *upstream {
	return &upstream{ns: ns, client: client, queues: queues, log: log.With(zap.String("monitor_queue", strings.Join(queues, ", "))), doubt: make(chan struct{}, 1), up: make(chan struct{}, 1), err: errNotTried}
}

// attached is a readiness check.
func (u *upstream) attached(context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

func (u *upstream) set(err error) {
	u.mu.Lock()
	u.err = err
	u.mu.Unlock()
}

// wasReached reports whether the namespace has answered once, whatever it said.
func (u *upstream) wasReached() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reached
}

// doubted asks for another check.
func (u *upstream) doubted() {
	select {
	case u.doubt <- struct{}{}:
	default: // a check is pending
	}
}

// run keeps the state until ctx ends. Nothing that the namespace says of the monitor queue ends a process: what needs no
// companion goes on without it, and a queue that is not there may come back, as rights may.
func (u *upstream) run(ctx context.Context) error {
	for ctx.Err() == nil {
		u.attach(ctx)
		select {
		case <-u.doubt:
		case <-ctx.Done():
		}
	}
	return nil
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
		u.set(err)
		if err == nil {
			if news {
				u.log.Info("namespace attached", zap.String("namespace", u.ns.Host))
			}
			select {
			case u.up <- struct{}{}:
			default: // whom it concerns has not looked since the last time
			}
			return
		}
		if logged != event || time.Since(at) >= remindEvery {
			logged, at = event, time.Now()
			u.log.Warn(event, zap.String("namespace", u.ns.Host), zap.Error(err),
				zap.String("next", u.next()))
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return
		}
	}
}

// next is what comes after a failure.
func (u *upstream) next() string {
	if u.goesOn && u.wasReached() {
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
	u.mu.Lock()
	u.reached = true
	u.mu.Unlock()
	// The SDK may wait for a dial of somebody else, whatever ctx says.
	for _, queue := range u.queues {
		answered := make(chan error, 1)
		go func() { answered <- u.attachOnce(ctx, queue) }()
		select {
		case err := <-answered:
			if err != nil {
				return eventNoQueue, explain(err, u.ns.Host, queue)
			}
		case <-ctx.Done():
			return eventUnreachable, fmt.Errorf("the queue %q of %s does not answer: %w", queue, u.ns.Host, ctx.Err())
		}
	}
	return "", nil
}

// attachOnce opens a link to a monitor queue and closes it again. It is a new one each time: the SDK takes one
// for open that was detached, as when the queue is deleted.
func (u *upstream) attachOnce(ctx context.Context, queue string) error {
	sender := u.client.NewSender(queue)
	err := sender.Do(ctx, func(ctx context.Context, link *azservicebus.Sender) error {
		_, err := link.NewMessageBatch(ctx, nil)
		return err
	})
	_ = sender.Close(ctx) // what matters is whether it could be opened
	return err
}

// reachable is the outbound check: can a connection be opened at all.
func (u *upstream) reachable(ctx context.Context) error {
	c, err := u.ns.Open(ctx)
	if err != nil {
		return fmt.Errorf("the namespace %s cannot be reached: %w; check the setting namespace and the network", u.ns.Host, err)
	}
	_ = c.Close() // it was opened for the asking
	return nil
}

// explain makes a sentence of what the namespace said about its queue.
func explain(err error, host, queue string) error {
	if err == nil {
		return nil
	}
	var code azservicebus.Code
	if sb := (*azservicebus.Error)(nil); errors.As(err, &sb) {
		code = sb.Code
	}
	reason := plainly(err)
	var condition amqp.ErrCond
	if remote := (*amqp.Error)(nil); errors.As(err, &remote) {
		condition = remote.Condition
	}
	switch {
	case code == azservicebus.CodeNotFound || condition == amqp.ErrCondNotFound:
		return fmt.Errorf("the namespace %s has no queue %q; create it (lock duration 10 seconds, "+
			"max delivery count 2000), or name another with monitorQueue", host, queue)
	case code == azservicebus.CodeUnauthorizedAccess || condition == amqp.ErrCondUnauthorizedAccess:
		return fmt.Errorf("the namespace %s refuses access to the queue %q: %s; "+
			"give the key or the identity the Send and Listen rights", host, queue, reason)
	case connect.SignInFailed(err):
		return fmt.Errorf("signing in to %s failed: %w", host, err)
	}
	return fmt.Errorf("the queue %q of %s cannot be written: %s", queue, host, reason)
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
