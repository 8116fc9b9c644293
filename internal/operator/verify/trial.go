// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// verdicts is the order of reports.
var verdicts = []Verdict{Otherwise, Unknown, AsAssumed}

// answer is what a trial found.
type answer struct {
	verdict Verdict
	detail  string // what was seen, in our own words; "" if there is nothing to add
	err     error  // that was seen; it may have names of the namespace
}

func asAssumed(format string, args ...any) answer {
	return answer{verdict: AsAssumed, detail: fmt.Sprintf(format, args...)}
}

func otherwise(format string, args ...any) answer {
	return answer{verdict: Otherwise, detail: fmt.Sprintf(format, args...)}
}

// refused is otherwise for a request that failed.
func refused(request string, err error) answer {
	return answer{
		verdict: Otherwise,
		detail:  request + " failed",
		err:     err,
	}
}

// unclear is the answer of a trial that could not tell.
func unclear(reason string) answer { return answer{verdict: Unknown, detail: reason} }

// failed is the answer of a trial of which a step failed.
func failed(err error) answer {
	seen, creation := (observation)(""), (*creationError)(nil)
	switch {
	case errors.As(err, &seen):
		return unclear(string(seen))
	case errors.As(err, &creation):
		return answer{
			verdict: Unknown,
			detail:  "creating a queue failed",
			err:     creation.error,
		}
	}
	return answer{verdict: Unknown, err: err}
}

// A creationError says why a queue could not be created.
type creationError struct{ error }

// An observation is an error in our own words.
type observation string

// Error returns the words.
func (o observation) Error() string { return string(o) }

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

// trial is one assumption that is being tried, with the queues that it makes. Its methods are the
// steps. Once a step has failed the others do nothing, and the error is the answer of the trial.
type trial struct {
	ctx    context.Context // of this one run
	cfg    *Config
	prefix string // of the names of its queues
	err    error  // of the step that failed

	made       []string // queues
	links      []closer // to them
	operations int      // that the service bills
}

type closer interface{ Close(context.Context) error }

// do takes a step, unless one before has failed.
func (t *trial) do(step func() error) {
	if t.err == nil {
		t.err = step()
	}
}

// run returns what try found, or why it could not tell.
func (t *trial) run(try func(*trial) answer) answer {
	found := try(t)
	if t.err != nil {
		return failed(t.err)
	}
	return found
}

// queue makes a queue, with changes to what queues of trials are like.
func (t *trial) queue(change ...func(*admin.QueueProperties)) (name string) {
	p := &admin.QueueProperties{
		AutoDeleteOnIdle: to.Ptr(idle), LockDuration: to.Ptr("PT1M"), MaxDeliveryCount: to.Ptr(int32(100)),
		DeadLetteringOnMessageExpiration: to.Ptr(true),
	}
	for _, f := range change {
		f(p)
	}
	name = fmt.Sprintf("%s-%d", t.prefix, len(t.made)+1)
	t.create(name, p)
	return name
}

func (t *trial) create(name string, p *admin.QueueProperties) {
	t.do(func() error {
		t.made = append(t.made, name)
		ctx, cancel := context.WithTimeout(t.ctx, changeTimeout)
		defer cancel()
		if _, err := t.cfg.Admin.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: p}); err != nil {
			return &creationError{err}
		}
		return nil
	})
}

// remove closes the links and deletes the queues, also after the time is over.
func (t *trial) remove() error {
	ctx := context.WithoutCancel(t.ctx)
	for _, l := range t.links {
		_ = l.Close(ctx) // the queue goes next
	}
	var errs []error
	for _, name := range t.made {
		changing, cancel := context.WithTimeout(ctx, changeTimeout)
		_, err := t.cfg.Admin.DeleteQueue(changing, name, nil)
		cancel()
		if err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("delete the queue %s: %w", name, failure.Plain(err)))
		}
	}
	return errors.Join(errs...)
}

// sender is one of the SDK; nil if a step has failed.
func (t *trial) sender(queue string) (s *azservicebus.Sender) {
	t.do(func() (err error) {
		if s, err = t.cfg.Client.NewSender(queue, nil); err == nil {
			t.links = append(t.links, s)
		}
		return err
	})
	return s
}

// send sends messages, one after the other.
func (t *trial) send(queue string, ms ...*azservicebus.Message) { t.sendPaced(queue, 0, ms...) }

// sendPaced is send with a pause after each message.
func (t *trial) sendPaced(queue string, pause time.Duration, ms ...*azservicebus.Message) {
	s := t.sender(queue)
	for _, m := range ms {
		t.do(func() error {
			t.operations++
			return s.SendMessage(t.ctx, m, nil)
		})
		t.wait(pause)
	}
}

// mortal is a message that expires.
func mortal(id string) *azservicebus.Message {
	return &azservicebus.Message{MessageID: &id, TimeToLive: to.Ptr(life)}
}

// live is a message that does not expire.
func live(id string) *azservicebus.Message { return &azservicebus.Message{MessageID: &id} }

// numbered are n messages that do not expire.
func numbered(n int) (ms []*azservicebus.Message) {
	for i := range n {
		ms = append(ms, live(fmt.Sprint("m-", i)))
	}
	return ms
}

// peek shows up to n messages of a queue or a dead-letter queue.
func (t *trial) peek(entity string, n int) (page []*link.Message) {
	t.do(func() (err error) {
		page, err = t.tryPeek(entity, n)
		return err
	})
	return page
}

// tryPeek is peek for an error that is the answer.
func (t *trial) tryPeek(entity string, n int) ([]*link.Message, error) {
	p, err := t.cfg.Links.Peeker(t.ctx, entity)
	if err != nil {
		return nil, err
	}
	defer p.Close(t.ctx)
	t.operations++
	return p.Peek(t.ctx, 0, n)
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
func (t *trial) one(r *link.Receiver) (*link.ReceivedMessage, error) {
	t.operations++
	if err := r.Grant(t.ctx, 1); err != nil {
		return nil, err
	}
	return r.Receive(t.ctx, nudgeWait)
}

// nudge grants one credit, and releases a message that came. It returns the id of that message. The
// end of the link ends the credit.
func (t *trial) nudge(queue string) (id string) {
	t.do(func() error {
		r, err := t.cfg.Links.Receiver(t.ctx, queue)
		if err != nil {
			return err
		}
		defer r.Close(t.ctx)
		m, err := t.one(r)
		if err != nil || m == nil {
			return err
		}
		id = m.MessageID
		return r.Release(t.ctx, m)
	})
	return id
}

// receive receives n messages, and calls f while they are locked. It releases them afterwards,
// unless f has settled them.
func (t *trial) receive(queue string, n int, f func(*link.Receiver, []*link.ReceivedMessage) error) {
	t.do(func() error {
		r, err := t.cfg.Links.Receiver(t.ctx, queue)
		if err != nil {
			return err
		}
		defer r.Close(t.ctx)
		if err := r.Grant(t.ctx, uint32(n)); err != nil {
			return err
		}
		var ms []*link.ReceivedMessage
		for len(ms) < n {
			m, err := r.Receive(t.ctx, receiveWait)
			switch {
			case err != nil:
				return err
			case m == nil:
				return observation(fmt.Sprintf("only %d of %d messages came within %v", len(ms), n, receiveWait))
			}
			t.operations++
			ms = append(ms, m)
		}
		return f(r, ms)
	})
}

// lock has the SDK receive a message, which it holds. Both are nil if a step has failed.
func (t *trial) lock(queue string) (r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) {
	t.do(func() (err error) {
		if r, err = t.cfg.Client.NewReceiverForQueue(queue, nil); err != nil {
			return err
		}
		t.links = append(t.links, r)
		ctx, cancel := context.WithTimeout(t.ctx, receiveWait)
		defer cancel()
		t.operations++
		ms, err := r.ReceiveMessages(ctx, 1, nil)
		if err == nil {
			m = ms[0]
		}
		return err
	})
	return r, m
}

// notFound reports whether the administration API has no such entity.
func notFound(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

const (
	errGone     = observation("a message that was sent was gone before its time to live ended")
	errAlone    = observation("a message was dead-lettered although nobody had received")
	errHidden   = observation("a peek does not show messages that have expired")
	errNoLetter = observation("an overdue message did not come to the dead-letter queue within 5 s of a receive")
)

// wait waits, unless the time of the trial ends.
func (t *trial) wait(d time.Duration) {
	t.do(func() error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
	})
}

// release releases messages, in order.
func (t *trial) release(r *link.Receiver, ms []*link.ReceivedMessage) error {
	for _, m := range ms {
		if err := r.Release(t.ctx, m); err != nil {
			return err
		}
	}
	return nil
}
