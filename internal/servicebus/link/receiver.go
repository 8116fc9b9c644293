// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
	"golang.org/x/sync/errgroup"
)

// grantTime bounds the wait until granted credit is on the wire. It is no round trip: only
// goroutines have to run.
const grantTime = time.Second

// settleMargin is what the broker gets to look for a message, from when the credit is on the wire
// until it is taken back.
const settleMargin = 2 * time.Millisecond

// closeTimeout bounds the closing of a receiver, whose caller may be in a hurry.
const closeTimeout = 5 * time.Second

const (
	// drainTimeout and giveBackTimeout bound the halves of giving back: the drain, and the releases.
	// Where the drain is not answered the releases follow all the same. The broker takes them in
	// this order, so none of them comes again for the credit.
	drainTimeout    = 2 * time.Second
	giveBackTimeout = 5 * time.Second
	// maxReleasing bounds the releases under way at once. On a line that brings no answers they are
	// all there is to it, so they are many.
	maxReleasing = 1024
)

// openTimeout bounds the opening of a receiver, the connection included.
const openTimeout = 30 * time.Second

// The filter of a source that wants one session, and its descriptor (azservicebus,
// session_receiver.go).
const (
	sessionFilter     = "com.microsoft:session-filter"
	sessionFilterCode = 0x137000000C
)

// A Receiver takes messages of one entity under lock. One goroutine grants, receives
// and drains; messages may be settled from any.
type Receiver struct {
	ns      *Namespace
	conn    *conn[*receiving]
	entity  string
	of      *string       // the session that it has the lock of, nil where there are none
	bare    bool          // see BareReceiver
	granted chan struct{} // a token when credit is on the wire
	session *amqp.Session
	link    *amqp.Receiver
	credit  uint32 // granted, and neither used nor taken back
	stalled bool   // a drain was not answered in time
}

// Receiver opens a receiver with no credit. entity may be a sub-queue's path.
func (n *Namespace) Receiver(ctx context.Context, entity string) (*Receiver, error) {
	return n.receiver(ctx, &Receiver{ns: n, entity: entity})
}

// BareReceiver is for callers that get past messages or settle them: they come without body, and
// with nothing but their stamps and the deadlines that they state, so that none of them is one that
// the AMQP client cannot decode.
//
// In an entity that requires sessions it accepts the one that is named. While the receiver is open
// nobody else can have that session; Close gives it up, and what it holds then goes back uncounted.
// Where somebody else has it the error has ConditionSessionLocked.
func (n *Namespace) BareReceiver(ctx context.Context, entity string, session *string) (*Receiver, error) {
	return n.receiver(ctx, &Receiver{ns: n, entity: entity, of: session, bare: true})
}

func (n *Namespace) receiver(ctx context.Context, r *Receiver) (*Receiver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.receiving.connect(ctx)
	if err != nil {
		return nil, err
	}
	r.conn = c
	if err := r.open(ctx); err != nil {
		if !refused(err) {
			n.receiving.drop(c)
		} else if r.session != nil {
			r.Close(ctx)
		}
		return nil, err
	}
	return r, nil
}

func (r *Receiver) open(ctx context.Context) (err error) {
	if err := r.Claim(ctx); err != nil {
		return err
	}
	if r.session, err = r.conn.wire.NewSession(ctx, nil); err != nil {
		return fmt.Errorf("link: open session: %w", err)
	}
	// Mode second makes Service Bus lock a message instead of handing it over, and answer a
	// settlement.
	options := amqp.ReceiverOptions{
		Credit:         -1, // granted by hand
		SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(),
	}
	options.Name = linkPrefix + rand.Text()
	if r.bare {
		options.Name = barePrefix + rand.Text()
	}
	r.granted = r.conn.wire.grants.expect(options.Name)
	defer r.conn.wire.grants.forget(options.Name)
	if r.of != nil {
		options.Filters = []amqp.LinkFilter{amqp.NewLinkFilter(sessionFilter, sessionFilterCode, *r.of)}
	}
	r.link, err = r.session.NewReceiver(ctx, r.entity, &options)
	if err != nil {
		return fmt.Errorf("link: open receiver on %s: %w", r.entity, err)
	}
	return nil
}

// Claim renews the right to use the entity when it is about to expire; otherwise it does
// nothing. A receiver that stays open has to call it now and then, or the service detaches it.
func (r *Receiver) Claim(ctx context.Context) error {
	return r.conn.claim(ctx, r.ns.cfg.Tokens, r.ns.audience(r.entity))
}

// Grant lets the broker send n messages more.
func (r *Receiver) Grant(n uint32) error {
	if err := r.link.IssueCredit(n); err != nil {
		return err
	}
	r.credit += n
	return nil
}

// Receive waits for one message, at most as long as wait. It returns nil without an
// error when none came.
func (r *Receiver) Receive(ctx context.Context, wait time.Duration) (*amqp.Message, error) {
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := r.link.Receive(timed, nil)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if m != nil {
		r.arrived()
	}
	return m, err
}

// arrived notes that a message has used up credit, unless that was taken back with it.
func (r *Receiver) arrived() { r.credit -= min(r.credit, 1) }

// Next grants one credit and returns the message that the broker has for it, or nil
// when it has none. It does not wait for one: the credit is drained right after it is on the wire.
//
// The AMQP client drains with a link-credit of zero. A broker that searches for messages
// as soon as credit arrives has done so by then; for one that does not, Next may come
// back empty although there was something, so a caller must look at the queue again. Next calls each
// of sent when the credit is on the wire.
func (r *Receiver) Next(ctx context.Context, sent ...func()) (*amqp.Message, error) {
	select {
	case <-r.granted: // of an earlier grant
	default:
	}
	if err := r.Grant(1); err != nil {
		return nil, err
	}
	var late error
	select {
	case <-r.granted:
	case <-time.After(grantTime): // the link may have ended; Receive says so
		late = fmt.Errorf("link: grant credit to %s: not written within %v", r.entity, grantTime)
	case <-ctx.Done():
	}
	for _, f := range sent {
		f()
	}
	m, err := r.Receive(ctx, settleMargin)
	if m != nil || err != nil {
		return m, err
	}
	if err := errors.Join(r.Drain(ctx), late); err != nil {
		return nil, err
	}
	return r.Prefetched(), nil
}

// Drain takes back what is left of the granted credit. Messages that the broker sent
// before are still to be received. It is bounded, but not ended by ctx: one that is given up leaves
// open what is still to come.
func (r *Receiver) Drain(ctx context.Context) error {
	if r.credit == 0 || r.stalled {
		return nil // it was said before that it is
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := r.link.DrainCredit(ctx, nil); err != nil {
		r.stalled = true
		return fmt.Errorf("link: drain %s: %w", r.entity, err)
	}
	r.credit = 0
	return nil
}

// Prefetched is a message that has arrived already, or nil.
func (r *Receiver) Prefetched() *amqp.Message {
	m := r.link.Prefetched()
	if m != nil {
		r.arrived()
	}
	return m
}

// GiveBack releases ms, takes back the credit that is left and releases what came for it, so that
// the link holds nothing any more but what else was received over it. It does so although ctx has
// ended: a lock that is left to lapse costs its message a delivery. It returns how many messages it
// has released, or tried to.
func (r *Receiver) GiveBack(ctx context.Context, ms ...*amqp.Message) (n int, err error) {
	drainErr := r.Drain(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for m := r.Prefetched(); m != nil; m = r.Prefetched() {
		ms = append(ms, m)
	}
	var g errgroup.Group
	g.SetLimit(maxReleasing)
	for _, m := range ms {
		g.Go(func() error { return r.Release(ctx, m) })
	}
	if err := g.Wait(); err != nil {
		return len(ms), fmt.Errorf("link: release on %s: %w", r.entity, err)
	}
	return len(ms), drainErr
}

// Complete settles m: it is gone from the queue.
func (r *Receiver) Complete(ctx context.Context, m *amqp.Message) error {
	return r.link.AcceptMessage(ctx, m)
}

// Release gives m back as if it had never been taken: its delivery count stays.
func (r *Receiver) Release(ctx context.Context, m *amqp.Message) error {
	return r.link.ReleaseMessage(ctx, m)
}

const (
	conditionDeadLetter = "com.microsoft:dead-letter"

	// ConditionNotFound: there is no such entity.
	ConditionNotFound = "amqp:not-found"
	// ConditionLockLost: the lock lapsed, or somebody else has settled the message.
	ConditionLockLost = "com.microsoft:message-lock-lost"
	// ConditionSessionLost: the lock of the session lapsed, and those of its messages with it.
	ConditionSessionLost = "com.microsoft:session-lock-lost"
	// ConditionSessionLocked: somebody else has the session.
	ConditionSessionLocked = "com.microsoft:session-cannot-be-locked"
	// ConditionNotAllowed: a receiver without a session where they are required, say, or one of what
	// forwards.
	ConditionNotAllowed = "amqp:not-allowed"
)

// DeadLetter moves m to the dead-letter queue with a reason and a description.
func (r *Receiver) DeadLetter(ctx context.Context, m *amqp.Message, reason, description string) error {
	return r.link.RejectMessage(ctx, m, &amqp.Error{
		Condition: conditionDeadLetter,
		Info:      map[string]any{"DeadLetterReason": reason, "DeadLetterErrorDescription": description},
	})
}

// Close detaches the link. Messages that it holds and did not settle stay locked
// until their locks lapse, which costs each a delivery: so settle them first.
func (r *Receiver) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := r.session.Close(ctx); err != nil {
		r.ns.receiving.drop(r.conn) // or the half-closed session would stay
	}
}

// Condition is the AMQP condition with which the broker refused or ended something,
// or "" when err is of another kind.
func Condition(err error) string {
	var remote *amqp.Error
	if errors.As(err, &remote) {
		return string(remote.Condition)
	}
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		return string(link.RemoteErr.Condition)
	}
	var answer *StatusError
	if errors.As(err, &answer) {
		if answer.Condition == "" && answer.Code == 404 {
			return ConditionNotFound
		}
		return answer.Condition
	}
	return ""
}

// refused reports whether err is a refusal by the peer. Such a one says nothing about the
// connection, and a connection that went down is seen as such. All else leaves it in doubt.
func refused(err error) bool {
	var link *amqp.LinkError
	var answer *StatusError
	var attach *amqp.Error // of an attach that is refused the client returns what the peer said, and nothing around it
	var ended *amqp.SessionError
	var closed *amqp.ConnError
	return errors.As(err, &link) || errors.As(err, &answer) ||
		errors.As(err, &attach) && !errors.As(err, &ended) && !errors.As(err, &closed)
}
