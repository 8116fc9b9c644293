// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"overdue/scheduler"
)

// A message is what the send path has to know of a message, whichever door it came
// through. The door keeps the rest.
type message struct {
	ID           string // "" = it goes without a name, see unnamed.go
	SessionID    string // "" = none
	PartitionKey string // "" = none

	TTL                  time.Duration // of its header, whole milliseconds; 0 = none
	ScheduledEnqueueTime time.Time     // whole milliseconds; zero = at once
	Size                 int64         // bytes of its body
	// Delay is how much later than any other message the broker may enqueue this one: at the end of
	// its transaction, say.
	Delay time.Duration

	// Property is the application property of that name, nil when there is none. It is nil itself when
	// the message has none at all.
	Property func(name string) any

	// Stamp is set by send: the TTL that the door has to put on the message. 0 leaves it
	// as it is.
	Stamp time.Duration
}

// A sending is one send on its way: some messages for one entity, all of them or none, and
// the promise of their deadlines. Both doors take the same steps: promise, then carry. The REST door takes
// them in the goroutine of its request, see send; the AMQP door where a delivery comes in, see
// amqp_link.go.
type sending struct {
	p        *Proxy
	door     string
	entity   string
	settings Settings
	n        int        // messages
	ms       []*message // until they are promised
	// unreadable is why there are no messages. Where nothing is monitored that is the broker's business.
	unreadable error
	now        scheduler.Instant // when they are: before anything leaves
	promises   []promise
	refs       []scheduler.Reference // of the promises; one may stand for several
	// findable says that slots stand for the messages, instead of references.
	findable bool
	// once says that the broker has each message once, stamped by then, when it has accepted them. That
	// is what lets their settlement be told from that of others.
	once bool
	// companionFirst makes the companions go before the messages instead of beside them.
	companionFirst bool
	// companionLast makes them go behind, unless they go first: until it is known that who sends may.
	companionLast bool
}

func (p *Proxy) newSending(door, entity string, settings Settings, ms []*message) *sending {
	return &sending{p: p, door: door, entity: entity, settings: settings, n: len(ms), ms: ms}
}

// send takes all the steps of one send, one after the other. transmit carries the messages to the
// broker with the TTLs that are stamped on them by then, and returns when they are accepted.
//
// When send returns nil, the messages and the companions of those that have a deadline
// are accepted. When it returns an error, the messages may be in the queue nevertheless:
// an acknowledgement was lost, or the companion failed beside a work message that did
// not. Every such error is one to retry, so a send is delivered at least once.
func (p *Proxy) send(ctx context.Context, s *sending, transmit func(context.Context) error) (err error) {
	defer func() { s.count(err) }()
	if err := s.learn(ctx); err != nil {
		return err
	}
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	// From here on the send runs to its end whether or not the app still waits: a caller
	// that hangs up between the work message and its companion must not part them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.SendTimeout)
	defer cancel()
	if err := s.promise(); err != nil {
		return err
	}
	s.refer()
	return s.carry(ctx, transmit)
}

// learn waits until it is known what holds for the entity, if it is not yet: a message whose
// deadline only the entity states must not go unwatched because the answer was late. It needs no
// place, so that one entity without an answer holds up no other.
func (s *sending) learn(ctx context.Context) (err error) {
	if !s.settings.Unknown {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.p.cfg.SendTimeout)
	defer cancel()
	if s.settings, err = s.p.cfg.Learn(ctx, s.entity); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return nil
}

// promise works out what the messages are promised and stamps their TTLs. It takes no time, so
// that a send needs its place from here on and not before. The clock is read before anything
// leaves: the broker's stamp cannot be earlier.
func (s *sending) promise() (err error) {
	if err := s.checkSize(); err != nil || !s.settings.Monitored {
		return err
	}
	if s.unreadable != nil {
		return s.unreadable
	}
	s.companionFirst = s.companionFirst || s.p.companionFirst.Load()
	s.now = s.p.cfg.Scheduler.Now()
	s.promises, err = promiseAll(s.ms, s.settings, s.now)
	return err
}

// refer makes what the companions are to say, once it is certain what the messages have on them.
func (s *sending) refer() {
	if len(s.promises) == 0 {
		return
	}
	s.unname()
	var room [8]time.Duration
	if lives := s.slots(room[:0]); len(lives) > 0 {
		s.findable = true
		until := s.now.Time.Add(s.now.Uncertainty + scheduler.SlotWindow)
		for i := range s.promises {
			s.promises[i].ref.Until = until
		}
		// Slots need no names. One reference is enough for all that have the same time to live, and from the same: what the entity
		// gives today its next default does not say.
		r := scheduler.Reference{From: s.promises[0].ref.From, Until: until}
		for i, life := range lives {
			if stated := s.promises[i].ref.Stated; i == 0 || life != r.Within || stated != r.Stated {
				r.Within, r.Stated = life, stated
				s.refs = append(s.refs, r)
			}
		}
		s.p.cfg.Scheduler.ExpectInSlots(s.entity, until.Add(sendWindow))
		return
	}
	s.refs = make([]scheduler.Reference, len(s.promises))
	for i := range s.promises {
		s.promises[i].ref.Once = s.once
		s.refs[i] = s.promises[i].ref
	}
	s.refs = distinct(s.refs)
	s.p.cfg.Scheduler.Expect(s.entity, s.refs)
}

// slots appends the times to live of the messages if slots are to stand for them: where all are found without a name, and many come.
// The journal keeps references alone.
func (s *sending) slots(lives []time.Duration) []time.Duration {
	if !s.settings.Findable || s.p.cfg.Journal != nil {
		return nil
	}
	lives = slices.Grow(lives, len(s.promises))
	for i := range s.promises {
		if !s.promises[i].findable {
			return nil
		}
		lives = append(lives, s.promises[i].ref.Within)
	}
	if !s.p.cfg.Scheduler.Pays(s.entity, lives, s.now) {
		return nil
	}
	return lives
}

// companion asks for what the messages with these references need.
func (s *sending) companion(refs []scheduler.Reference) scheduler.Companion {
	return scheduler.Companion{Entity: s.entity, References: refs, Findable: s.findable}
}

// prepare takes the promise of a delivery, and has complete put on it what is stamped. sentSettled says that its app
// does not want to hear of failures.
func (s *sending) prepare(sentSettled bool, complete func() error) error {
	if err := s.promise(); err != nil {
		return err
	}
	// A companion that fails cannot stop what was sent settled, so it need not go first.
	s.companionFirst = s.companionFirst && !sentSettled
	defer func() { s.ms = nil }() // what is in flight must not keep payloads in memory
	if len(s.promises) == 0 {
		return nil
	}
	if err := complete(); err != nil {
		return err
	}
	s.refer()
	return nil
}

// checkSize holds the bodies against the entity's own bound, where there is one.
func (s *sending) checkSize() error {
	limit := s.settings.MaxMessageSize
	if limit == 0 {
		return nil
	}
	for _, m := range s.ms {
		if m.Size > limit {
			return fmt.Errorf("%w: body of %d bytes, at most %d", errTooLarge, m.Size, limit)
		}
	}
	return nil
}

// carry brings the messages to the broker and their companions to the monitor queue. Both are in
// flight together, which costs the send no more than the slower of the two.
func (s *sending) carry(ctx context.Context, transmit func(context.Context) error) error {
	if len(s.promises) == 0 {
		return transmit(ctx)
	}
	if s.companionLast && !s.companionFirst {
		if err := s.transmit(ctx, transmit); err != nil {
			return err
		}
		if err := s.p.schedule(s.companion(s.refs))(ctx); err != nil {
			return err
		}
		return s.promiseAgain(ctx)
	}
	companions := s.p.schedule(s.companion(s.refs))
	if s.companionFirst {
		if err := companions(ctx); err != nil {
			return err
		}
		if err := s.transmit(ctx, transmit); err != nil {
			return err
		}
		return s.promiseAgain(ctx)
	}
	if err := s.transmit(ctx, transmit); err != nil {
		return err // the companions may still be written; that costs one needless look
	}
	if err := companions(ctx); err != nil {
		return err
	}
	return s.promiseAgain(ctx)
}

// transmit carries the messages to the broker.
func (s *sending) transmit(ctx context.Context, transmit func(context.Context) error) error {
	if err := transmit(ctx); err != nil {
		return err
	}
	s.confirm()
	return nil
}

// confirm follows the acceptance of the messages.
func (s *sending) confirm() {
	if s.once && !s.findable {
		s.p.cfg.Scheduler.Confirm(s.entity, s.refs)
	}
}

// promiseAgain looks at the clock once more now that the messages are accepted. The
// companions name the window in which the broker has stamped the messages. A send that
// was retried may have been stamped later: those messages get a second companion, with a
// window up to now, before the app is told.
func (s *sending) promiseAgain(ctx context.Context) error {
	late := s.late()
	if len(late) == 0 {
		return nil
	}
	return s.p.schedule(s.companion(late))(ctx)
}

// late are the references for the second companions of messages that may have been stamped late.
func (s *sending) late() (late []scheduler.Reference) {
	now := s.p.cfg.Scheduler.Now()
	for i := range s.promises {
		pr := &s.promises[i]
		if n := len(late); s.findable && n > 0 && late[n-1].Within == pr.ref.Within {
			continue // one is enough for slots
		}
		if ref, ok := pr.widened(now); ok {
			late = append(late, ref)
		}
	}
	return distinct(late)
}

// count counts how the send ended.
func (s *sending) count(err error) {
	s.p.metrics.sent(s.door, s.entity, s.n, len(s.promises), err)
}

// schedule hands the companions over. wait returns when they are accepted, or safe in the journal where there
// is one, and remembers how it went.
func (p *Proxy) schedule(c scheduler.Companion) (wait func(context.Context) error) {
	begin := p.cfg.Scheduler.Begin
	if p.cfg.Journal != nil {
		begin = p.cfg.Journal.Begin
	}
	companions := begin(c)
	return func(ctx context.Context) error {
		err := companions(ctx)
		if !errors.Is(ctx.Err(), context.Canceled) { // then it was whoever waits that left
			p.noteCompanions(err)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errCompanion, err)
		}
		return nil
	}
}

// noteCompanions remembers the last word of the monitor queue.
func (p *Proxy) noteCompanions(err error) {
	if first := err != nil; p.companionFirst.Load() != first { // mostly it is what it was
		p.companionFirst.Store(first)
	}
}

// promiseAll works out the promise of every message that has a deadline.
func promiseAll(ms []*message, settings Settings, now scheduler.Instant) ([]promise, error) {
	promises := make([]promise, 0, len(ms))
	for i, m := range ms {
		pr, ok, err := promiseOf(m, settings, now)
		if err != nil {
			return nil, ofBatch(err, i, len(ms))
		}
		if ok {
			pr.of, pr.stamped = i, m.Stamp
			promises = append(promises, pr)
		}
	}
	return promises, nil
}
