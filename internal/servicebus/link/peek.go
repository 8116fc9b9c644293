// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

// A Peeker peeks at one queue, or at a sub-queue, through its $management node: it opens no link
// to the queue itself. It is for one goroutine.
type Peeker struct {
	ns     *Namespace
	conn   *conn
	entity string
	node   *client.Node
	ahead  PeekRange // requested before it is needed; N = 0: nothing
}

// Peeker opens a Peeker. entity may be a sub-queue's path. With its audience, Peeker claims those
// that the caller will use next, which are paths of entities or of nodes.
func (n *Namespace) Peeker(ctx context.Context, entity string, next ...string) (*Peeker, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.receiving.connect(ctx)
	if err != nil {
		return nil, err
	}
	p := &Peeker{ns: n, conn: c, entity: entity}
	node := entity + "/$management"
	others := make([]string, len(next))
	for i, path := range next {
		others[i] = n.audience(path)
	}
	if err = c.claim(ctx, n.cfg.Tokens, n.audience(node), others...); err == nil {
		p.node, err = c.wire.Node(ctx, node)
		err = clientError(err)
	}
	if err != nil {
		if !refused(err) {
			n.receiving.drop(c)
		}
		return nil, fmt.Errorf("link: open %s: %w", node, err)
	}
	return p, nil
}

// PageSize is the most messages that Service Bus returns for one peek ("Message browsing"), or
// cancels with one request.
const PageSize = 250

// Peek brings up to n messages, PageSize at most, from sequence number from on, without their bodies.
// None means that there is none from there on. After an error the Peeker is closed.
func (p *Peeker) Peek(ctx context.Context, from int64, n int) ([]*Message, error) {
	pages, err := p.PeekEach(ctx, []PeekRange{{from, n}})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}

// A PeekRange asks for up to N messages, 250 at most, from a sequence number on.
type PeekRange struct {
	From int64
	N    int
}

// PeekEach is Peek for several ranges: it sends the requests before it waits for the answers, so
// that together they take hardly longer than one. pages[i] is for ranges[i].
func (p *Peeker) PeekEach(ctx context.Context, ranges []PeekRange) (pages [][]*Message, err error) {
	requests := make([]amqp.Map, len(ranges))
	for i, r := range ranges {
		requests[i] = withoutBody(r)
	}
	pages = make([][]*Message, len(ranges))
	err = p.call(ctx, operationPeek, requests, func(i int, body amqp.Raw) (err error) {
		pages[i], err = parsePage(body, func(int, *Message) error { return nil })
		return err
	}, ConditionMessageNotFound)
	if err != nil {
		return nil, err
	}
	return pages, nil
}

// PeekAhead is Peek for one of many pages. When the page is there, it sends the request for the
// next one if more accepts the number of messages and the last of them. After that it reads the
// page, so both sides work at a time. If the next call is for another range, the page that was
// requested is dropped.
func (p *Peeker) PeekAhead(ctx context.Context, r PeekRange, more func(n int, last *Message) bool) (page []*Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if p.ahead != r {
		if err = p.dropAhead(ctx); err == nil {
			err = p.ask(ctx, r)
		}
	}
	if err == nil {
		page, err = p.takeAhead(ctx, func(n int, last *Message) error {
			if !more(n, last) {
				return nil
			}
			return p.ask(ctx, PeekRange{last.SequenceNumber + 1, r.N})
		})
	}
	return page, p.ended(ctx, operationPeek, err)
}

// Ahead returns the range that was requested ahead; N = 0: none.
func (p *Peeker) Ahead() PeekRange { return p.ahead }

// ask sends the request for a page that takeAhead takes.
func (p *Peeker) ask(ctx context.Context, r PeekRange) error {
	request, err := p.request(ctx, operationPeek, withoutBody(r))
	if err != nil {
		return err
	}
	p.ahead = r
	return p.node.Send(ctx, request)
}

// takeAhead waits for the page that was requested. See parsePage for next.
func (p *Peeker) takeAhead(ctx context.Context, next func(n int, last *Message) error) ([]*Message, error) {
	_, a, err := p.node.Answer(ctx)
	p.ahead = PeekRange{}
	if err != nil || a.Condition == ConditionMessageNotFound {
		return nil, err
	}
	if err := status(&a); err != nil {
		return nil, err
	}
	return parsePage(a.Body, next)
}

// dropAhead takes the page that nobody needs any more.
func (p *Peeker) dropAhead(ctx context.Context) error {
	if p.ahead.N == 0 {
		return nil
	}
	_, err := p.takeAhead(ctx, func(int, *Message) error { return nil })
	return err
}

// parsePage reads the messages of an answer. It calls next with their number and the last of them
// before it reads the others.
func parsePage(body amqp.Raw, next func(n int, last *Message) error) ([]*Message, error) {
	var encoded [][]byte
	for m, err := range peeked(body) {
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, m)
	}
	page := make([]*Message, len(encoded))
	for i := len(encoded) - 1; i >= 0; i-- {
		var err error
		if page[i], err = parseMessage(encoded[i]); err != nil {
			return nil, err
		}
		if i == len(encoded)-1 {
			if err := next(len(page), page[i]); err != nil {
				return nil, err
			}
		}
	}
	return page, nil
}

const operationPeek = "com.microsoft:peek-message"

func peekRequest(r PeekRange) amqp.Map {
	return amqp.Map{{Key: "from-sequence-number", Value: r.From}, {Key: "message-count", Value: int32(r.N)}}
}

func withoutBody(r PeekRange) amqp.Map {
	return append(peekRequest(r), amqp.Pair{Key: "omit-message-body", Value: true})
}

// PeekEncoded is like Peek, but brings the messages as they are encoded, whole.
func (p *Peeker) PeekEncoded(ctx context.Context, from int64, n int) (page [][]byte, err error) {
	err = p.call(ctx, operationPeek, []amqp.Map{peekRequest(PeekRange{from, n})}, func(_ int, body amqp.Raw) error {
		for encoded, err := range peeked(body) {
			if err != nil {
				return err
			}
			page = append(page, encoded)
		}
		return nil
	}, ConditionMessageNotFound)
	return page, err
}

// PeekBody brings the first data section of the message with a sequence number, nil if there is no
// such message.
func (p *Peeker) PeekBody(ctx context.Context, number int64) ([]byte, error) {
	page, err := p.PeekEncoded(ctx, number, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	if m, err := parseMessage(page[0]); err != nil || m.SequenceNumber != number {
		return nil, nil // another one, since that one is gone
	}
	return firstData(page[0]), nil
}

// call sends several requests before it waits for their answers, and calls take with the body of
// each answer. It does not if the broker refuses the request with one of the conditions that are no
// error. After an error the Peeker is closed.
func (p *Peeker) call(ctx context.Context, operation string, requests []amqp.Map, take func(i int, body amqp.Raw) error, noError ...string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return p.ended(ctx, operation, p.callEach(ctx, operation, requests, take, noError))
}

// ended closes the Peeker after an error, and says what the error is about.
func (p *Peeker) ended(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	p.Close(ctx)
	return fmt.Errorf("link: %s on %s: %w", operation, p.entity, clientError(err))
}

func (p *Peeker) callEach(ctx context.Context, operation string, requests []amqp.Map, take func(i int, body amqp.Raw) error, noError []string) error {
	if err := p.dropAhead(ctx); err != nil {
		return err
	}
	all := make([]client.Request, len(requests))
	for i, r := range requests {
		var err error
		if all[i], err = p.request(ctx, operation, r); err != nil {
			return err
		}
	}
	return p.node.CallEach(ctx, all, func(i int, a *amqp.Answer) error {
		if slices.Contains(noError, string(a.Condition)) {
			return nil
		}
		if err := status(a); err != nil {
			return err
		}
		return take(i, a.Body)
	})
}

// request encodes a request, for which it claims the right.
func (p *Peeker) request(ctx context.Context, operation string, body amqp.Map) (r client.Request, err error) {
	if err = p.conn.claim(ctx, p.ns.cfg.Tokens, p.ns.audience(p.entity+"/$management")); err != nil {
		return r, err
	}
	r.Properties = amqp.Map{{Key: "operation", Value: operation}}
	r.Body, err = amqp.AppendValue(nil, body)
	return r, err
}

// Schedule has the broker enqueue a message when it is due, and returns its sequence number until
// then. After an error the Peeker is closed.
func (p *Peeker) Schedule(ctx context.Context, m *ScheduledMessage) (number int64, err error) {
	entry := amqp.Map{{Key: "message-id", Value: m.MessageID}, {Key: "message", Value: m.Encoded()}}
	request := []amqp.Map{{{Key: "messages", Value: amqp.List{entry}}}}
	err = p.call(ctx, "com.microsoft:schedule-message", request, func(_ int, body amqp.Raw) error {
		r, _ := amqp.MapLookup(body, "sequence-numbers")
		numbers, _ := r.Value().(amqp.Array)
		if len(numbers) != 1 {
			return fmt.Errorf("%d sequence numbers for one message", len(numbers))
		}
		var ok bool
		if number, ok = numbers[0].(int64); !ok {
			return fmt.Errorf("a sequence number of type %T", numbers[0])
		}
		return nil
	})
	return number, err
}

// beingCancelled is in the refusal of a second request to cancel a message while the first is under
// way (azure-service-bus-go 177).
const beingCancelled = "already being cancelled"

// CancelScheduled takes scheduled messages off the entity. Messages that another request is
// cancelling are gone as well: only the caller cancels them, so that was an attempt whose answer
// was lost. After an error the Peeker is closed.
func (p *Peeker) CancelScheduled(ctx context.Context, numbers []int64) error {
	all := make(amqp.Array, len(numbers))
	for i, number := range numbers {
		all[i] = number
	}
	request := []amqp.Map{{{Key: "sequence-numbers", Value: all}}}
	err := p.call(ctx, "com.microsoft:cancel-scheduled-message", request, func(int, amqp.Raw) error { return nil })
	var refusal *StatusError
	if errors.As(err, &refusal) && refusal.Code == http.StatusBadRequest && strings.Contains(refusal.Description, beingCancelled) {
		return nil
	}
	return err
}

// listed yields the elements of {"messages": [{…}, …]}.
func listed(body amqp.Raw) iter.Seq2[amqp.Raw, error] {
	return func(yield func(amqp.Raw, error) bool) {
		r, ok := amqp.MapLookup(body, "messages")
		if !ok {
			return
		}
		list, n := r.List()
		for range n {
			entry := list.Raw()
			if err := list.Err(); err != nil {
				yield(nil, fmt.Errorf("link: messages of an answer: %w", err))
				return
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// peeked yields the encoded messages of {"messages": [{"message": binary}, …]}.
func peeked(body amqp.Raw) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for entry, err := range listed(body) {
			var encoded []byte
			if err == nil {
				r, _ := amqp.MapLookup(entry, "message")
				encoded, err = r.Binary(), r.Err()
			}
			if !yield(encoded, err) || err != nil {
				return
			}
		}
	}
}

// Close closes the links.
func (p *Peeker) Close(ctx context.Context) { p.node.Close(ctx) }

// A Lock is the token of one delivery.
type Lock amqp.UUID

// lockOf returns the lock that a delivery has. The broker writes the token as the delivery tag, as
// .NET orders the bytes of a GUID (azservicebus, lockTokenFromMessageTag).
func lockOf(t []byte) (lock Lock) {
	if len(t) != len(lock) {
		return Lock{}
	}
	copy(lock[:], t)
	lock[0], lock[1], lock[2], lock[3] = t[3], t[2], t[1], t[0]
	lock[4], lock[5], lock[6], lock[7] = t[5], t[4], t[7], t[6]
	return lock
}

// TakeDeferred locks the deferred message with that number. In an entity that requires sessions its
// session has to be locked by a Receiver meanwhile, and named. until is the end of the lock by the
// broker's clock; zero: unknown. ok is false where the message is not
// there to be had: gone, locked by somebody else, or expired, which the broker notices only now and
// acts upon. After an error the Peeker is closed.
func (p *Peeker) TakeDeferred(ctx context.Context, number int64, session *string) (lock Lock, until time.Time, ok bool, err error) {
	request := amqp.Map{
		{Key: "sequence-numbers", Value: amqp.Array{number}},
		{Key: "receiver-settle-mode", Value: uint32(1)}, // under lock
	}
	if session != nil {
		request = append(request, amqp.Pair{Key: "session-id", Value: *session})
	}
	err = p.call(ctx, "com.microsoft:receive-by-sequence-number", []amqp.Map{request}, func(_ int, body amqp.Raw) error {
		for entry, err := range listed(body) {
			if err != nil {
				return err
			}
			r, _ := amqp.MapLookup(entry, "lock-token")
			token, isUUID := r.Value().(amqp.UUID)
			if !isUUID {
				return fmt.Errorf("link: deferred message %d came without a lock token", number)
			}
			lock, ok = Lock(token), true
			r, _ = amqp.MapLookup(entry, "message")
			if encoded := r.Binary(); r.Err() == nil {
				raw, _ := amqp.ParseHead(encoded) // what can be read
				until = annotated(raw.MessageAnnotations, "x-opt-locked-until")
			}
			return nil
		}
		return nil
	}, ConditionMessageNotFound, ConditionSessionLost)
	return lock, until, ok && err == nil, err
}

// DeadLetter moves the message under that lock to the dead-letter queue, with a reason and a
// description. session is as in TakeDeferred. ok is false where the lock is no more. After an error
// the Peeker is closed.
func (p *Peeker) DeadLetter(ctx context.Context, lock Lock, session *string, reason, description string) (ok bool, err error) {
	return p.settle(ctx, lock, session, amqp.Map{
		{Key: "disposition-status", Value: "suspended"},
		{Key: "deadletter-reason", Value: reason},
		{Key: "deadletter-description", Value: description},
	})
}

// DeferAgain gives back a deferred message, which stays deferred. session is as in TakeDeferred. ok
// is false where the lock is no more. After an error the Peeker is closed.
func (p *Peeker) DeferAgain(ctx context.Context, lock Lock, session *string) (ok bool, err error) {
	return p.settle(ctx, lock, session, amqp.Map{{Key: "disposition-status", Value: "defered"}}) // as the wire spells it
}

// settle sends a disposition for the message under that lock.
func (p *Peeker) settle(ctx context.Context, lock Lock, session *string, request amqp.Map) (ok bool, err error) {
	request = append(request, amqp.Pair{Key: "lock-tokens", Value: amqp.Array{amqp.UUID(lock)}})
	if session != nil {
		request = append(request, amqp.Pair{Key: "session-id", Value: *session})
	}
	err = p.call(ctx, "com.microsoft:update-disposition", []amqp.Map{request}, func(int, amqp.Raw) error {
		ok = true
		return nil
	}, ConditionLockLost, ConditionSessionLost)
	return ok && err == nil, err
}

const operationRenew = "com.microsoft:renew-lock"

// renewBatch bounds the locks of one request.
const renewBatch = 100

// RenewLocks renews locks of the entity, whichever link they came over. until has the instants at
// which they lapse now, by the broker's clock; the zero time for a lock that is no more. It also
// returns how many requests that took. After an error the Peeker is closed.
func (p *Peeker) RenewLocks(ctx context.Context, locks []Lock) (until []time.Time, requests int, err error) {
	until = make([]time.Time, len(locks))
	var batches [][]int
	for i := range locks {
		if i%renewBatch == 0 {
			batches = append(batches, nil)
		}
		batches[len(batches)-1] = append(batches[len(batches)-1], i)
	}
	// A request with a lock that is no more renews none: those of its locks are asked for one by
	// one.
	alone, err := p.renew(ctx, locks, batches, until)
	requests = len(batches)
	if err != nil || len(alone) == 0 {
		return until, requests, err
	}
	_, err = p.renew(ctx, locks, alone, until)
	return until, requests + len(alone), err
}

// renew makes one request for each batch, which are indexes of locks. again are the locks of
// batches that the broker has refused, one by one.
func (p *Peeker) renew(ctx context.Context, locks []Lock, batches [][]int, until []time.Time) (again [][]int, err error) {
	requests := make([]amqp.Map, len(batches))
	for i, batch := range batches {
		tokens := make(amqp.Array, len(batch))
		for k, at := range batch {
			tokens[k] = amqp.UUID(locks[at])
		}
		requests[i] = amqp.Map{{Key: "lock-tokens", Value: tokens}}
	}
	answered := make([]bool, len(batches))
	err = p.call(ctx, operationRenew, requests, func(i int, body amqp.Raw) error {
		answered[i] = true
		r, _ := amqp.MapLookup(body, "expirations")
		times, _ := r.Value().(amqp.Array)
		if len(times) != len(batches[i]) {
			return fmt.Errorf("%d locks were renewed of %d", len(times), len(batches[i]))
		}
		for k, at := range batches[i] {
			t, ok := times[k].(amqp.Timestamp)
			if !ok {
				return fmt.Errorf("a lock was renewed until %T", times[k])
			}
			until[at] = t.Time()
		}
		return nil
	}, ConditionLockLost, ConditionMessageNotFound)
	if err != nil {
		return nil, err
	}
	for i, batch := range batches {
		if answered[i] || len(batch) == 1 {
			continue
		}
		for _, at := range batch {
			again = append(again, []int{at})
		}
	}
	return again, nil
}
