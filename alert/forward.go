// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"overdue/internal/monitorqueue"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/link"
)

// Application properties of a forwarded copy: where it comes from and which deadline it missed.
const (
	propertyMissedOn       = "overdue-missed-on"       // entity, or topic/Subscriptions/subscription
	propertyMissedDeadline = "overdue-missed-deadline" // AMQP timestamp
	propertyMissedEvent    = "overdue-missed-event"    // the event's id
)

// deadlineProperties state a deadline. A copy does not have them, since it would be late at once.
var deadlineProperties = []string{"overdue-deadline", "overdue-within", "overdue-complete-within"}

const (
	forwardTime = 30 * time.Second // of one message, with the retries of the SDK
	// complete receives dead letters from the head of their queue, where they are if all are
	// forwarded. A dead letter behind more than searchDepth others stays.
	searchDepth   = 200
	maxIncomplete = 10_000
	searchWait    = time.Second
)

// Handling is what else happens to the dead letters of an entity that missed their deadlines.
type Handling struct {
	ForwardTo string // queue or topic for a copy, after which the dead letter is completed; "" = none
	Report    bool   // send the event to the reply-to of the message
}

// ForwardConfig configures a Forward. All but Log are needed.
type ForwardConfig struct {
	Links    *link.Namespace
	Handling func(entity string) Handling
	Log      *zap.Logger // nil: none

	// MonitorQueue gets no reports, nor does another monitor queue: they would be taken for
	// companions.
	MonitorQueue string
}

// Forward is an [Alerter] that forwards messages that missed their deadlines, and reports to their
// senders. Like any Alerter it gets an event again until it returns nil, so no message is lost. It
// makes a second copy only if this process dies between a send and its acknowledgement; duplicate
// detection at the target drops that copy.
type Forward struct {
	cfg ForwardConfig

	mu     sync.Mutex
	copied map[string][]copied // to be completed, by entity; a key is present while run works on it
}

// copied is a dead letter of which there is a copy.
type copied struct {
	number int64
	tried  chan struct{} // closed when its dead letter was completed, or not found
}

// NewForward makes a Forward.
func NewForward(cfg ForwardConfig) (*Forward, error) {
	if cfg.Links == nil || cfg.Handling == nil {
		return nil, errors.New("alert: forwarding needs Links and Handling")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Forward{cfg: cfg, copied: map[string][]copied{}}, nil
}

// Name returns its name in companions and metrics.
func (f *Forward) Name() string { return "forward" }

// Alert returns once the message of e is forwarded and reported, as its entity requires.
func (f *Forward) Alert(ctx context.Context, e Event) error {
	if e.Type != TypeMissed {
		return nil
	}
	h := f.cfg.Handling(e.Data.Entity)
	if h == (Handling{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTime)
	defer cancel()
	isCopied, err := f.forward(ctx, e, h)
	if err != nil || !isCopied {
		return err
	}
	c := copied{e.Data.SequenceNumber, make(chan struct{})}
	f.mu.Lock()
	path := e.Data.Path()
	_, running := f.copied[path]
	f.copied[path] = append(f.copied[path], c)
	f.mu.Unlock()
	if !running {
		go f.run(path)
	}
	select {
	case <-c.tried:
	case <-ctx.Done(): // it is forwarded
	}
	return nil
}

// run completes the dead letters of one entity until none is left. Those that are copied meanwhile
// are completed together, since all of them leave the same dead-letter queue.
func (f *Forward) run(path string) {
	// Dead letters not found yet, mostly because they are behind others that are forwarded next.
	incomplete := map[int64]bool{}
	for {
		f.mu.Lock()
		if len(f.copied[path]) == 0 && len(incomplete) > 0 {
			f.mu.Unlock()
			time.Sleep(searchWait) // those in front may be forwarded by then
			f.mu.Lock()
		}
		next := f.copied[path]
		if len(next) == 0 && len(incomplete) == 0 {
			delete(f.copied, path)
			f.mu.Unlock()
			return
		}
		f.copied[path] = nil
		f.mu.Unlock()
		before := len(incomplete)
		for _, c := range next {
			incomplete[c.number] = true
		}
		if err := f.complete(path, incomplete); err != nil {
			f.cfg.Log.Debug("dead letters not completed yet", zap.String("work_queue", path), zap.Error(err))
		}
		if len(next) == 0 && len(incomplete) == before || len(incomplete) > maxIncomplete {
			f.cfg.Log.Warn("dead letters forwarded but not completed: they are behind others, or cannot be received",
				zap.String("work_queue", path), zap.Int("messages", len(incomplete)))
			clear(incomplete)
		}
		for _, c := range next {
			close(c.tried)
		}
	}
}

// forward reports and forwards the message of e. It reports whether there is a copy of it.
func (f *Forward) forward(ctx context.Context, e Event, h Handling) (isCopied bool, err error) {
	m, err := f.deadLetter(ctx, e)
	if err != nil {
		return false, fmt.Errorf("alert: forward from %s: %w", e.Data.Path(), err)
	}
	if m == nil {
		f.cfg.Log.Warn("dead letter gone before it could be forwarded or reported",
			zap.String("work_queue", e.Data.Path()), zap.String("message_id", e.Subject), zap.Int64("sequence_number", e.Data.SequenceNumber))
		return false, nil
	}
	if to := m.Properties.ReplyTo; h.Report && to != nil && *to != "" {
		if err := f.report(ctx, e, m.Properties); err != nil {
			return false, err
		}
	}
	if h.ForwardTo == "" {
		return false, nil
	}
	err = send(ctx, f.cfg.Links, h.ForwardTo, copyOf(m, e))
	if err == nil {
		return true, nil
	}
	err = fmt.Errorf("alert: forward to %s: %w", h.ForwardTo, err)
	if errors.Is(err, link.ErrTooLarge) {
		return false, backoff.Permanent(err)
	}
	return false, err
}

// report sends e to the reply-to of m.
func (f *Forward) report(ctx context.Context, e Event, m *amqp.MessageProperties) error {
	to, err := f.reportsTo(*m.ReplyTo)
	if err != nil {
		// The sender chooses the address. A wrong one fails forever, so nobody tries again.
		f.cfg.Log.Warn("missed deadline not reported", zap.String("reply_to", *m.ReplyTo), zap.String("message_id", e.Subject), zap.Error(err))
		return nil
	}
	correlation, _ := m.CorrelationID.(string)
	if correlation == "" {
		correlation, _ = m.MessageID.(string) // as request and reply do it
	}
	session := m.ReplyToGroupID
	if session != nil && *session == "" {
		session = nil
	}
	report, err := eventMessage(e)
	if err != nil {
		return err
	}
	report.Properties.CorrelationID, report.Properties.GroupID = correlation, session
	err = send(ctx, f.cfg.Links, to, report)
	// The sender chooses the address. A wrong one must not hold up the reports to others for a day.
	if link.Condition(err) == link.ConditionNotFound || link.Unauthorized(err) {
		f.cfg.Log.Warn("missed deadline not reported", zap.String("reply_to", to), zap.String("message_id", e.Subject), zap.Error(err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("alert: report to %s: %w", to, err)
	}
	return nil
}

// errNoReports is the error for an address that no report may be sent to. This is a subscription, a
// dead-letter queue, a node of an entity, or the monitor queue, where a report would be taken for a
// companion.
var errNoReports = errors.New("messages cannot be sent there")

// reportsTo returns the queue or topic of a reply-to, which may be a URI of the namespace.
func (f *Forward) reportsTo(replyTo string) (string, error) {
	at, err := address.Parse(replyTo)
	if err != nil {
		return "", err
	}
	if !at.TakesMessages() || monitorqueue.Of(f.cfg.MonitorQueue, 1).Has(at.Entity()) {
		return "", errNoReports
	}
	return at.Entity(), nil
}

// complete completes the dead letters with these numbers and removes those that it finds from the
// set.
func (f *Forward) complete(path string, numbers map[int64]bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), forwardTime)
	defer cancel()
	r, err := f.cfg.Links.Receiver(ctx, path+"/$DeadLetterQueue")
	if err != nil {
		return err
	}
	defer r.Close(context.WithoutCancel(ctx))
	if err := r.Grant(ctx, uint32(len(numbers)+searchDepth)); err != nil {
		return err
	}
	var others []*link.ReceivedMessage
	for len(numbers) > 0 && len(others) < searchDepth {
		m, err := r.Receive(ctx, searchWait)
		if err != nil {
			return err
		}
		if m == nil {
			break
		}
		if !numbers[m.SequenceNumber] {
			others = append(others, m)
			continue
		}
		if err := r.Complete(ctx, m); err != nil {
			return err
		}
		delete(numbers, m.SequenceNumber)
	}
	_, err = r.GiveBack(ctx, others...)
	return err
}
