// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
)

// Kind says what an entity is.
type Kind int

// The kinds of entities.
const (
	KindQueue Kind = iota
	KindTopic
	KindSubscription
)

func (k Kind) String() string { return [...]string{"queue", "topic", "subscription"}[k] }

// An Entity is one queue, topic or subscription of a namespace.
//
//	queue         messages wait in its engine queue
//	topic         every message goes through its engine queue, which numbers it and keeps it while it is scheduled;
//	              what is active moves on into the subscriptions
//	subscription  like a queue, only that it is sent to by its topic alone
//
// Where an entity forwards, what waits in its queue moves on in the same way.
type Entity struct {
	ns     *Namespace
	kind   Kind
	path   string
	topic  *Entity // of a subscription
	queue  *queue.Queue
	number uint32       // by which the disk knows it and its queue; 0: it is not kept
	quota  *queue.Quota // of the entity; a subscription's is its topic's
	links  links
	stamps
	activities *activities

	settings atomic.Pointer[settings]

	movers atomic.Pointer[movers]
	subs   atomic.Pointer[[]*Entity] // of a topic, sorted by path; guarded for writers by ns.entities.mu
	rules  rules                     // of a subscription; guarded for writers by ns.entities.mu
	idle   idleTimer
}

// stamps are the times of an entity, by the broker's clock.
type stamps struct {
	created  time.Time
	updated  atomic.Int64 // in Unix nanoseconds
	accessed atomic.Int64 // 0: never
}

// settings is how an entity is set up, defaults filled in: the field of its
// kind. Immutable.
type settings struct {
	queue        QueueConfig
	topic        TopicConfig
	subscription SubscriptionConfig
}

// common is what the three kinds have in common.
type common struct {
	status                Status
	maxMessageSize        uint64 // 0: the namespace's
	forwardTo, forwardDLQ string
	autoDeleteOnIdle      time.Duration
	rights                []AuthorizationRule
}

func (e *Entity) common() common {
	s := e.settings.Load()
	switch e.kind {
	case KindTopic:
		return common{s.topic.Status, s.topic.MaxMessageSize, "", "", s.topic.AutoDeleteOnIdle, s.topic.AuthorizationRules}
	case KindSubscription:
		c := &s.subscription
		t := e.topic.common()
		return common{c.Status, t.maxMessageSize, c.ForwardTo, c.ForwardDeadLetteredMessagesTo, c.AutoDeleteOnIdle, t.rights}
	}
	c := &s.queue
	return common{c.Status, c.MaxMessageSize, c.ForwardTo, c.ForwardDeadLetteredMessagesTo, c.AutoDeleteOnIdle, c.AuthorizationRules}
}

// Path is the entity's name, as it was made: "q", "t" or "t/Subscriptions/s".
func (e *Entity) Path() string { return e.path }

// Kind is what the entity is.
func (e *Entity) Kind() Kind { return e.kind }

// Queue is the engine behind the entity: where the messages of a queue or a
// subscription wait, and those of a topic that are scheduled.
func (e *Entity) Queue() *queue.Queue { return e.queue }

// root is the queue or topic that e is or belongs to.
func (e *Entity) root() *Entity { return cmp.Or(e.topic, e) }

// RequiresSession reports whether the entity gives its messages out by session.
func (e *Entity) RequiresSession() bool {
	s := e.settings.Load()
	return e.kind == KindQueue && s.queue.RequiresSession || e.kind == KindSubscription && s.subscription.RequiresSession
}

// MaxMessageSize is the largest message that the entity takes, in bytes.
func (e *Entity) MaxMessageSize() uint64 {
	if n := e.common().maxMessageSize; n != 0 {
		return n
	}
	return e.ns.b.cfg.MaxMessageSize
}

// maxBatchSize is the largest batch that the entity takes, in bytes.
func (e *Entity) maxBatchSize() uint64 { return min(e.MaxMessageSize(), maxBatchSize) }

// Send stores encoded AMQP messages, all or none. The entity owns them from
// then on.
func (e *Entity) Send(encoded ...[]byte) *amqp.Error {
	messages := make([]queue.Message, len(encoded))
	for i, b := range encoded {
		err := e.hasRoomFor(b)
		if err != nil {
			return err
		}
		if messages[i], err = message.Read(b); err != nil {
			return err
		}
	}
	return e.send(false, messages...)
}

// hasRoomFor says why a message is too large for the entity.
func (e *Entity) hasRoomFor(encoded []byte) *amqp.Error {
	if most := e.MaxMessageSize(); uint64(len(encoded)) > most {
		return amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "The message has %d bytes, %d is the most.", len(encoded), most)
	}
	return nil
}

// send is what every way to send ends in: one message of a link, a batch, a
// request, or (passedOn) what another entity forwards. Before it returns the
// messages have reached where they are received.
func (e *Entity) send(passedOn bool, ms ...queue.Message) *amqp.Error {
	if err := e.mayBeSentTo(); err != nil {
		return err
	}
	if !passedOn {
		if refusal := e.ns.b.disk.Trouble(); refusal != nil {
			return refusal
		}
	}
	e.touch()
	if _, err := e.queue.Send(ms...); err != nil {
		return e.refusal(err)
	}
	if !passedOn {
		e.activities.incoming.Add(uint64(len(ms)))
	}
	e.move(!passedOn)
	return nil
}

// schedule is send for a client who wants the sequence numbers.
func (e *Entity) schedule(ms ...queue.Message) ([]int64, *amqp.Error) {
	if err := e.mayBeSentTo(); err != nil {
		return nil, err
	}
	e.touch()
	numbers, err := e.queue.Schedule(ms...)
	if err != nil {
		return nil, e.refusal(err)
	}
	e.activities.incoming.Add(uint64(len(ms)))
	e.move(true) // the time of some may be past
	return numbers, nil
}

// mayBeSentTo says why not.
func (e *Entity) mayBeSentTo() *amqp.Error {
	switch {
	case e.kind == KindSubscription:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to send to a subscription: '%.260s'.", e.path)
	case !e.common().status.sends():
		return e.errDisabled()
	}
	return nil
}

// mayBeReceivedFrom says why not.
func (e *Entity) mayBeReceivedFrom(a address.Address) *amqp.Error {
	c := e.common()
	switch {
	case e.kind == KindTopic:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to receive from a topic: '%.260s'. Its subscriptions can be received from.", e.path)
	case !c.status.receives():
		return e.errDisabled()
	case !isDead(a) && c.forwardTo != "", a.SubQueue == address.DeadLetter && c.forwardDLQ != "":
		return amqp.Errorf(amqp.ErrCondNotAllowed, "Cannot create a message receiver on an entity with auto-forwarding enabled.")
	}
	return nil
}

// join makes l, on which a client is to receive, one of the entity's links. It
// asks whether that may be once l is among those that an update detaches: what
// forbids it in between would not meet it otherwise.
func (e *Entity) join(l detacher, a address.Address) *amqp.Error {
	if !e.links.add(l) {
		return notFound(e.ns.host.url(a.Entity()))
	}
	err := e.mayBeReceivedFrom(a)
	if err != nil {
		e.links.remove(l)
	}
	return err
}

// node returns the queue that an address of e means.
func (e *Entity) node(a address.Address) *queue.Queue {
	switch a.SubQueue {
	case address.TransferDeadLetter: // for sends via an entity, which are refused or arrive
		return e.ns.entities.nothing.queue.DeadLetterQueue()
	case address.DeadLetter:
		return e.queue.DeadLetterQueue()
	}
	return e.queue
}

// touch notes that the entity is in use. A subscription in use keeps its topic.
func (e *Entity) touch() {
	now := e.ns.Now().UnixNano()
	e.accessed.Store(now)
	if e.topic != nil {
		e.topic.accessed.Store(now)
	}
}

// close ends everything that belongs to the entity but its links. It is in no map any more, and
// reports nothing from then on.
func (e *Entity) close() {
	e.idle.stop()
	e.movers.Load().close()
	e.queue.Close()
}

// closeLinks follows close.
func (e *Entity) closeLinks(reason *amqp.Error) {
	e.links.close(func(detacher) *amqp.Error { return e.tracked(reason) })
}

// partLinks detaches every link of the entity.
func (e *Entity) partLinks() {
	e.links.detach(func(l detacher) *amqp.Error { return e.tracked(errForced(l)) })
}

// times are the stamps of the administration API.
func (s *stamps) times() (created, updated, accessed time.Time) {
	updated = time.Unix(0, s.updated.Load()).UTC()
	if at := s.accessed.Load(); at != 0 {
		accessed = time.Unix(0, at).UTC()
	}
	return s.created, updated, accessed
}

// links are the open links of an entity, so that it can part with them.
type links struct {
	mu   sync.Mutex
	all  map[detacher]struct{}
	over bool // the entity is gone
}

// A detacher is a link, of either direction.
type detacher interface{ Detach(*amqp.Error) }

// add reports false when the entity has been deleted.
func (ls *links) add(l detacher) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.over {
		return false
	}
	if ls.all == nil {
		ls.all = make(map[detacher]struct{})
	}
	ls.all[l] = struct{}{}
	return true
}

func (ls *links) remove(l detacher) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.all, l)
}

func (ls *links) len() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.all)
}

// close is detach for good.
func (ls *links) close(reason func(detacher) *amqp.Error) {
	ls.mu.Lock()
	ls.over = true
	ls.mu.Unlock()
	ls.detach(reason)
}

// detach ends all links. Their sources and sinks remove them.
func (ls *links) detach(reason func(detacher) *amqp.Error) {
	ls.mu.Lock()
	all := make([]detacher, 0, len(ls.all))
	for l := range ls.all {
		all = append(all, l)
	}
	ls.mu.Unlock()
	for _, l := range all {
		l.Detach(reason(l))
	}
}

// engine is how the entity's queue behaves.
func (e *Entity) engine() queue.Config {
	s := e.settings.Load()
	cfg := queue.Config{
		Expiry:          e.ns.b.cfg.Expiry,
		Quirks:          e.ns.b.cfg.Quirks,
		Now:             e.ns.Now,
		Shared:          e.quota,
		RequiresSession: e.RequiresSession(),
		DeadLetters:     &e.activities.dead,
	}
	if e.number != 0 {
		cfg.Log = e.ns.b.cfg.Disk.Queue(e.number)
	}
	switch e.kind {
	case KindQueue:
		c := &s.queue
		cfg.LockDuration, cfg.MaxDeliveryCount = c.LockDuration, c.MaxDeliveryCount
		cfg.DefaultMessageTimeToLive = c.DefaultMessageTimeToLive
		cfg.DeadLetteringOnMessageExpiration = c.DeadLetteringOnMessageExpiration
		cfg.Partitioned = c.EnablePartitioning
		cfg.RequiresDuplicateDetection = c.RequiresDuplicateDetection
		cfg.DuplicateDetectionHistoryTimeWindow = c.DuplicateDetectionHistoryTimeWindow
	case KindTopic:
		c := &s.topic
		cfg.DefaultMessageTimeToLive = c.DefaultMessageTimeToLive
		cfg.Partitioned = c.EnablePartitioning
		cfg.RequiresDuplicateDetection = c.RequiresDuplicateDetection
		cfg.DuplicateDetectionHistoryTimeWindow = c.DuplicateDetectionHistoryTimeWindow
	case KindSubscription:
		c := &s.subscription
		cfg.LockDuration, cfg.MaxDeliveryCount = c.LockDuration, c.MaxDeliveryCount
		cfg.DefaultMessageTimeToLive = duration.Shorter(c.DefaultMessageTimeToLive, e.topic.settings.Load().topic.DefaultMessageTimeToLive)
		cfg.DeadLetteringOnMessageExpiration = c.DeadLetteringOnMessageExpiration
	}
	return cfg
}

// maxSize bounds what a queue, or a topic with its subscriptions, holds.
func (e *Entity) maxSize() int64 {
	s := e.settings.Load()
	if e.kind == KindTopic {
		return s.topic.MaxSize
	}
	return s.queue.MaxSize
}
