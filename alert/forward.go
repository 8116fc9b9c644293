// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"
	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
)

// Application properties of what is sent on: where the message came from and what it missed.
const (
	PropertyMissedOn       = "overdue-missed-on"       // entity, or topic/Subscriptions/subscription
	PropertyMissedDeadline = "overdue-missed-deadline" // AMQP timestamp
	PropertyMissedEvent    = "overdue-missed-event"    // the event's id
)

// What states a deadline is not sent on: a copy that was late already would be late again at once.
var statements = []string{"overdue-deadline", "overdue-within", "overdue-complete-within"}

const (
	forwardTime   = 30 * time.Second // of one round, tries of the SDK included
	forwardRound  = 500              // messages seen to together
	forwardAtOnce = 32               // of them under way at once
	// A dead letter is taken off from the head of its queue, which is near where it lies when all are sent on. Among more
	// than burySearch others it is left.
	burySearch  = 200
	maxUnburied = 10_000
	buryWait    = time.Second
)

// Handling says what becomes of the messages of an entity that missed their deadlines, beside being dead letters.
type Handling struct {
	ForwardTo string // queue or topic that gets a copy; the dead letter is completed then. "" = none
	Report    bool   // whether a message to its reply-to says so
}

// ForwardConfig configures a Forward. All but Log are needed.
type ForwardConfig struct {
	Client   *sdk.Client
	Links    *link.Namespace
	Handling func(entity string) Handling
	Log      *zap.Logger // nil: none
}

// Forward is an [Alerter] that sends messages on that have missed their deadlines, and reports to their senders. Like any
// other it is told of an event again until it has done so, so nothing is lost. A copy is made twice only when this process dies
// between a send and its acknowledgement; a target with duplicate detection absorbs that.
type Forward struct {
	cfg ForwardConfig

	mu      sync.Mutex
	senders map[string]*sdk.Sender
	jobs    map[string]*forwarding   // under way, by event
	waiting map[string][]*forwarding // not begun, by where; a key is there while somebody sees to it
}

// forwarding is one message on its way.
type forwarding struct {
	event    Event
	handling Handling
	done     chan struct{} // closed when err is final
	err      error
}

// NewForward makes a Forward. Close closes its links.
func NewForward(cfg ForwardConfig) (*Forward, error) {
	if cfg.Client == nil || cfg.Links == nil || cfg.Handling == nil {
		return nil, errors.New("alert: forwarding needs a client, links and what to do")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Forward{
		cfg: cfg, senders: map[string]*sdk.Sender{}, jobs: map[string]*forwarding{}, waiting: map[string][]*forwarding{},
	}, nil
}

// Name is what companions and metrics call it.
func (f *Forward) Name() string { return "forward" }

// Alert returns when the message of e has been sent on and reported, where its entity wants that. Whoever stops waiting
// and asks again joins what is under way.
func (f *Forward) Alert(ctx context.Context, e Event) error {
	if e.Type != TypeMissed {
		return nil
	}
	h := f.cfg.Handling(e.Data.Entity)
	if h == (Handling{}) {
		return nil
	}
	f.mu.Lock()
	j := f.jobs[e.ID]
	if j == nil {
		j = &forwarding{event: e, handling: h, done: make(chan struct{})}
		f.jobs[e.ID] = j
		key := where(e)
		_, running := f.waiting[key]
		f.waiting[key] = append(f.waiting[key], j)
		if !running {
			go f.run(key)
		}
	}
	f.mu.Unlock()
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run sees to the messages of one entity until there is none: what comes while some are on their way shares the next round,
// since all of them are taken off one dead-letter queue.
func (f *Forward) run(key string) {
	// What was sent on and not found yet among the dead letters: mostly it stands behind others that are sent on next.
	unburied := map[int64]bool{}
	for {
		f.mu.Lock()
		jobs := f.waiting[key]
		if len(jobs) == 0 && len(unburied) == 0 {
			delete(f.waiting, key)
			f.mu.Unlock()
			return
		}
		jobs = jobs[:min(len(jobs), forwardRound)]
		f.waiting[key] = slices.Clone(f.waiting[key][len(jobs):])
		f.mu.Unlock()
		before := len(unburied)
		f.round(key, jobs, unburied)
		if len(jobs) == 0 && len(unburied) == before || len(unburied) > maxUnburied {
			f.cfg.Log.Warn("dead letters were sent on and not completed: they stand behind others, or cannot be received",
				zap.String("work_queue", key), zap.Int("messages", len(unburied)))
			clear(unburied)
		}
		f.mu.Lock()
		for _, j := range jobs {
			delete(f.jobs, j.event.ID)
		}
		f.mu.Unlock()
		for _, j := range jobs {
			close(j.done)
		}
	}
}

// round sends on and reports, then completes the dead letters of what was sent on, now or before. What is not found stays in
// unburied.
func (f *Forward) round(key string, jobs []*forwarding, unburied map[int64]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), forwardTime)
	defer cancel()
	var sending sync.WaitGroup
	places := make(chan struct{}, forwardAtOnce)
	for _, j := range jobs {
		places <- struct{}{}
		sending.Go(func() {
			defer func() { <-places }()
			j.err = f.forward(ctx, j)
		})
	}
	sending.Wait()
	for _, j := range jobs {
		if j.err == nil && j.handling.ForwardTo != "" {
			unburied[j.event.Data.SequenceNumber] = true
		}
	}
	if err := f.bury(ctx, key, unburied); err != nil {
		f.cfg.Log.Debug("dead letters not completed yet", zap.String("work_queue", key), zap.Error(err))
	}
}

// forward takes one message where it has to go.
func (f *Forward) forward(ctx context.Context, j *forwarding) error {
	e := j.event
	m, err := f.deadLetter(ctx, e)
	if err != nil {
		return fmt.Errorf("alert: forward from %s: %w", where(e), err)
	}
	if m == nil {
		f.cfg.Log.Warn("dead letter was taken before it could be sent on or reported",
			zap.String("work_queue", where(e)), zap.String("message_id", e.Subject), zap.Int64("sequence_number", e.Data.SequenceNumber))
		return nil
	}
	if to := m.ReplyTo; j.handling.Report && to != nil && *to != "" {
		if err := f.report(ctx, e, m); err != nil {
			return err
		}
	}
	if j.handling.ForwardTo == "" {
		return nil
	}
	return f.send(ctx, j.handling.ForwardTo, copyOf(m, e))
}

// where is the path of the entity that the message was received from.
func where(e Event) string {
	if e.Data.Subscription == "" {
		return e.Data.Entity
	}
	return e.Data.Entity + "/Subscriptions/" + e.Data.Subscription
}

// deadLetter peeks at the message of e; nil when it is no dead letter any more.
func (f *Forward) deadLetter(ctx context.Context, e Event) (_ *azservicebus.ReceivedMessage, err error) {
	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	client := f.cfg.Client.Current()
	r, err := client.NewReceiverForQueue(e.Data.Entity, options)
	if e.Data.Subscription != "" {
		r, err = client.NewReceiverForSubscription(e.Data.Entity, e.Data.Subscription, options)
	}
	if err != nil {
		return nil, err
	}
	done := f.cfg.Client.Watch(ctx, client)
	defer func() { done(err) }()
	defer func() { _ = r.Close(ctx) }() // it was only peeked with
	ms, err := r.PeekMessages(ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &e.Data.SequenceNumber})
	if err != nil || len(ms) == 0 || ms[0].SequenceNumber == nil || *ms[0].SequenceNumber != e.Data.SequenceNumber {
		return nil, err
	}
	return ms[0], nil
}

// copyOf is m as it is sent on: without what its dead-lettering has added, without its time to live, which is over, and
// with where it comes from.
func copyOf(m *azservicebus.ReceivedMessage, e Event) *azservicebus.AMQPAnnotatedMessage {
	raw := m.RawAMQPMessage
	c := &azservicebus.AMQPAnnotatedMessage{Body: raw.Body, Footer: raw.Footer, ApplicationProperties: maps.Clone(raw.ApplicationProperties)}
	if raw.Properties != nil {
		p := *raw.Properties
		p.AbsoluteExpiryTime, p.CreationTime = nil, nil // which go with the time to live
		c.Properties = &p
	}
	if raw.Header != nil {
		c.Header = &azservicebus.AMQPAnnotatedMessageHeader{Durable: raw.Header.Durable, Priority: raw.Header.Priority}
	}
	if c.ApplicationProperties == nil {
		c.ApplicationProperties = map[string]any{}
	}
	for _, name := range append(statements, "DeadLetterReason", "DeadLetterErrorDescription") {
		delete(c.ApplicationProperties, name)
	}
	c.ApplicationProperties[PropertyMissedOn] = where(e)
	c.ApplicationProperties[PropertyMissedDeadline] = e.Data.Deadline
	c.ApplicationProperties[PropertyMissedEvent] = e.ID
	if m.PartitionKey != nil {
		c.MessageAnnotations = map[any]any{"x-opt-partition-key": *m.PartitionKey}
	}
	return c
}

// report tells the sender of m, by its reply-to, that its deadline was missed.
func (f *Forward) report(ctx context.Context, e Event, m *azservicebus.ReceivedMessage) error {
	to := entityOf(*m.ReplyTo)
	correlation := m.CorrelationID
	if correlation == nil || *correlation == "" {
		correlation = &m.MessageID // as request and reply do it
	}
	var session *string
	if m.ReplyToSessionID != nil && *m.ReplyToSessionID != "" {
		session = m.ReplyToSessionID
	}
	report, err := eventMessage(e)
	if err != nil {
		return err
	}
	report.CorrelationID, report.SessionID = correlation, session
	err = f.sender(to).Send(ctx, report)
	// Who sends says where to. A wrong address must not keep others from being told for a day.
	if known := (*azservicebus.Error)(nil); errors.As(err, &known) && (known.Code == azservicebus.CodeNotFound || known.Code == azservicebus.CodeUnauthorizedAccess) {
		f.cfg.Log.Warn("missed deadline not reported", zap.String("reply_to", to), zap.String("message_id", e.Subject), zap.Error(err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("alert: report to %s: %w", to, err)
	}
	return nil
}

// entityOf is the entity of a reply-to, which may be a URI of the namespace.
func entityOf(replyTo string) string {
	if _, rest, isURI := strings.Cut(replyTo, "://"); isURI {
		_, replyTo, _ = strings.Cut(rest, "/")
	}
	return strings.Trim(replyTo, "/")
}

func (f *Forward) send(ctx context.Context, to string, m *azservicebus.AMQPAnnotatedMessage) error {
	err := f.sender(to).Do(ctx, func(ctx context.Context, s *azservicebus.Sender) error {
		return s.SendAMQPAnnotatedMessage(ctx, m, nil)
	})
	if err != nil {
		err = fmt.Errorf("alert: forward to %s: %w", to, err)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) {
			return backoff.Permanent(err)
		}
	}
	return err
}

// maxSenders bounds the links that reply-tos can have us open.
const maxSenders = 100

func (f *Forward) sender(to string) *sdk.Sender {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.senders[to]; s != nil {
		return s
	}
	if len(f.senders) >= maxSenders {
		for name, s := range f.senders {
			delete(f.senders, name)
			go func() { _ = s.Close(context.Background()) }() // whoever sends over it tries again
			break
		}
	}
	s := f.cfg.Client.NewSender(to)
	f.senders[to] = s
	return s
}

// bury completes the dead letters with these numbers and takes them out of the set, as far as it finds them.
func (f *Forward) bury(ctx context.Context, key string, numbers map[int64]bool) error {
	if len(numbers) == 0 {
		return nil
	}
	r, err := f.cfg.Links.Receiver(ctx, key+"/$DeadLetterQueue")
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	if err := r.Grant(uint32(len(numbers) + burySearch)); err != nil {
		return err
	}
	var others []*goamqp.Message
	for len(numbers) > 0 && len(others) < burySearch {
		m, err := r.Receive(ctx, buryWait)
		if err != nil {
			return err
		}
		if m == nil {
			break
		}
		number, _ := m.Annotations["x-opt-sequence-number"].(int64)
		if !numbers[number] {
			others = append(others, m)
			continue
		}
		if err := r.Complete(ctx, m); err != nil {
			return err
		}
		delete(numbers, number)
	}
	_, err = r.GiveBack(ctx, others...)
	return err
}

// Close closes the links to targets.
func (f *Forward) Close(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, s := range f.senders {
		errs = append(errs, s.Close(ctx))
	}
	clear(f.senders)
	return errors.Join(errs...)
}
