// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

// A Verdict says how an assumption fared.
type Verdict string

// The verdicts.
const (
	AsAssumed Verdict = "as assumed"
	Otherwise Verdict = "otherwise"
	Unknown   Verdict = "could not tell"
)

// answer is what a trial found.
type answer struct {
	verdict Verdict
	detail  string // what was seen; "" if there is nothing to add
}

func asAssumed(format string, args ...any) answer {
	return answer{AsAssumed, fmt.Sprintf(format, args...)}
}

func otherwise(format string, args ...any) answer {
	return answer{Otherwise, fmt.Sprintf(format, args...)}
}

// untold is the answer of a trial that failed.
func untold(err error) answer { return answer{Unknown, failure.Reason(err)} }

// when is as assumed if held, and otherwise if not. The detail is that of the second.
func when(held bool, format string, args ...any) answer {
	if held {
		return answer{verdict: AsAssumed}
	}
	return otherwise(format, args...)
}

const (
	// changeTimeout bounds one change of an entity.
	changeTimeout = 30 * time.Second
	// idle deletes the queues if this process does not. Service Bus accepts no shorter time.
	idle = "PT5M"
	// life is the time to live of messages that are to expire. expired is how long a trial waits for
	// that: longer by the possible difference between the clocks of a namespace.
	life    = 2 * time.Second
	expired = life + 1500*time.Millisecond
	// nudgeWait is how long a receive waits for a message that need not be there.
	nudgeWait = time.Second
	// receiveWait bounds the wait for a message that is there.
	receiveWait = 10 * time.Second
	deadLetters = "/$DeadLetterQueue"
)

// trial is one assumption that is being tried, with the queues that it makes.
type trial struct {
	cfg    *Config
	prefix string // of the names of its queues

	mu         sync.Mutex
	made       []string // queues
	operations int
}

// count counts operations that the service bills.
func (t *trial) count(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.operations += n
}

// queue makes a queue, with changes to what queues of trials are like.
func (t *trial) queue(ctx context.Context, change ...func(*admin.QueueProperties)) (string, error) {
	p := &admin.QueueProperties{
		AutoDeleteOnIdle: to.Ptr(idle), LockDuration: to.Ptr("PT1M"), MaxDeliveryCount: to.Ptr(int32(100)),
		DeadLetteringOnMessageExpiration: to.Ptr(true),
	}
	for _, f := range change {
		f(p)
	}
	t.mu.Lock()
	name := fmt.Sprintf("%s-%d", t.prefix, len(t.made)+1)
	t.made = append(t.made, name)
	t.mu.Unlock()
	return name, t.create(ctx, name, p)
}

func (t *trial) create(ctx context.Context, name string, p *admin.QueueProperties) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if _, err := t.cfg.Admin.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: p}); err != nil {
		return fmt.Errorf("create the queue %s: %w", name, failure.Plain(err))
	}
	return nil
}

// remove deletes the queues, also after ctx has ended.
func (t *trial) remove(ctx context.Context) error {
	t.mu.Lock()
	made := t.made
	t.mu.Unlock()
	var errs []error
	for _, name := range made {
		changing, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
		_, err := t.cfg.Admin.DeleteQueue(changing, name, nil)
		cancel()
		if err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("delete the queue %s: %w", name, failure.Plain(err)))
		}
	}
	return errors.Join(errs...)
}

// send sends messages, one after the other.
func (t *trial) send(ctx context.Context, queue string, ms ...*azservicebus.Message) error {
	return t.sendPaced(ctx, queue, 0, ms...)
}

// sendPaced is send with a pause after each message.
func (t *trial) sendPaced(ctx context.Context, queue string, pause time.Duration, ms ...*azservicebus.Message) error {
	sender, err := t.cfg.Client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // what was sent has been acknowledged
	for _, m := range ms {
		t.count(1)
		if err := errors.Join(sender.SendMessage(ctx, m, nil), wait(ctx, pause)); err != nil {
			return err
		}
	}
	return nil
}

// mortal is a message that expires.
func mortal(id string) *azservicebus.Message {
	return &azservicebus.Message{MessageID: &id, TimeToLive: to.Ptr(life)}
}

// live is a message that does not expire.
func live(id string) *azservicebus.Message { return &azservicebus.Message{MessageID: &id} }

// peek shows up to n messages of a queue or a dead-letter queue.
func (t *trial) peek(ctx context.Context, entity string, n int) ([]*link.Message, error) {
	p, err := t.cfg.Links.Peeker(ctx, entity)
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	t.count(1)
	return p.Peek(ctx, 0, n)
}

// ids are those of messages, in their order.
func ids(ms []*link.Message) []string {
	all := make([]string, len(ms))
	for i, m := range ms {
		all[i] = m.MessageID
	}
	return all
}

// one receives a message, or nil if none comes. It does not drain: whether that works is an
// assumption of its own.
func (t *trial) one(ctx context.Context, r *link.Receiver) (*link.ReceivedMessage, error) {
	t.count(1)
	if err := r.Grant(ctx, 1); err != nil {
		return nil, err
	}
	return r.Receive(ctx, nudgeWait)
}

// nudge grants one credit, and releases a message that came. It returns the id of that message. The
// end of the link ends the credit.
func (t *trial) nudge(ctx context.Context, queue string) (id string, err error) {
	r, err := t.cfg.Links.Receiver(ctx, queue)
	if err != nil {
		return "", err
	}
	defer r.Close(ctx)
	m, err := t.one(ctx, r)
	if err != nil || m == nil {
		return "", err
	}
	return m.MessageID, r.Release(ctx, m)
}

// receive receives n messages, and calls f while they are locked. It releases them afterwards,
// unless f has settled them.
func (t *trial) receive(ctx context.Context, queue string, n int, f func(*link.Receiver, []*link.ReceivedMessage) error) error {
	r, err := t.cfg.Links.Receiver(ctx, queue)
	if err != nil {
		return err
	}
	defer r.Close(ctx)
	if err := r.Grant(ctx, uint32(n)); err != nil {
		return err
	}
	var ms []*link.ReceivedMessage
	for len(ms) < n {
		m, err := r.Receive(ctx, receiveWait)
		switch {
		case err != nil:
			return err
		case m == nil:
			return fmt.Errorf("only %d of %d messages came within %v", len(ms), n, receiveWait)
		}
		t.count(1)
		ms = append(ms, m)
	}
	return f(r, ms)
}

// notFound reports whether the administration API has no such entity.
func notFound(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

var (
	errGone     = errors.New("a message that was sent was gone before its time to live ended")
	errAlone    = errors.New("a message was dead-lettered although nobody had received")
	errHidden   = errors.New("a peek does not show messages that have expired")
	errNoLetter = errors.New("an overdue message did not come to the dead-letter queue within 5 s of a receive")
)

// wait waits, unless ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release releases messages, in order.
func release(ctx context.Context, r *link.Receiver, ms []*link.ReceivedMessage) error {
	for _, m := range ms {
		if err := r.Release(ctx, m); err != nil {
			return err
		}
	}
	return nil
}
