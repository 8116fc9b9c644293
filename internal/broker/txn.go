// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"crypto/rand"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/queue"
)

const (
	// transactionTimeout is how long a transaction lives, counted from its declaration.
	transactionTimeout = 2 * time.Minute
	// maxTransactionMessages is how many messages take part in one.
	maxTransactionMessages = 100
	// maxTransactions is how many of them a connection has open.
	maxTransactions = 1000
)

// transactions are those of one connection: no transaction spans two.
//
// The mutex is held while queues are asked, and never the other way round.
type transactions struct {
	now  func() time.Time // the broker's clock
	disk DiskGate

	mu   sync.Mutex
	open map[string]*transaction // by id; declared and not discharged
}

// A transaction is work that is prepared and not done. Every part was checked when it came. The
// queues keep the things that it needs: the locks of the messages to settle, the room for the
// messages to send. So the end of a transaction cannot fail halfway.
type transaction struct {
	coordinator *server.SinkLink // which declared it
	root        *Entity          // the queue or topic where all of it takes place, nil: nothing has
	partition   int64            // of root, 0: any
	parts       []part
	messages    int
	failed      *amqp.Error // why it cannot be committed any more, nil: it can
	deadline    time.Time   // by the broker's clock
	timer       *time.Timer // a wake-up: the deadline is looked at on every use
}

// A part is one prepared operation.
type part interface {
	possible() bool // whether commit would do it; not when the entity is gone
	commit()
	rollback()
	Partition() (p int64, one bool) // where it takes place, 0: anywhere
}

// declare begins a transaction and returns its id.
func (ts *transactions) declare(coordinator *server.SinkLink) ([]byte, *amqp.Error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.open) >= maxTransactions {
		return nil, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The connection has %d transactions open.", len(ts.open))
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	t := &transaction{coordinator: coordinator, deadline: ts.now().Add(transactionTimeout)}
	t.timer = time.AfterFunc(transactionTimeout, func() { ts.timeout(string(id)) })
	if ts.open == nil {
		ts.open = make(map[string]*transaction)
	}
	ts.open[string(id)] = t
	return id, nil
}

// timeout rolls a transaction back that has lived too long. The client hears of
// it when it names the transaction next; one that never does is forgotten after
// the same time once more.
func (ts *transactions) timeout(id string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.open[id]
	switch {
	case t == nil: // discharged meanwhile
	case t.failed != nil:
		delete(ts.open, id)
	default:
		// The broker's clock may have been set back; the client's time is over all the same.
		t.fail(errTransactionTimeout())
		t.timer.Reset(transactionTimeout)
	}
}

// find returns a transaction, rolled back if its time is over; nil when there
// is none.
func (ts *transactions) find(id []byte) *transaction {
	t := ts.open[string(id)]
	if t != nil && t.failed == nil && !ts.now().Before(t.deadline) {
		t.fail(errTransactionTimeout())
	}
	return t
}

// discharge ends a transaction: all of it is done, or, with fail, nothing. The
// error says that nothing was, though it should have been.
func (ts *transactions) discharge(id []byte, fail bool) *amqp.Error {
	sent, err := ts.end(id, fail)
	for _, e := range sent {
		e.move(true)
	}
	return err
}

// end is discharge, but for what follows a send; sent are the entities where
// that is due. It is not done under the mutex, because it may wait for others.
func (ts *transactions) end(id []byte, fail bool) (sent []*Entity, err *amqp.Error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.find(id)
	if t == nil {
		return nil, errUnknownTransaction()
	}
	delete(ts.open, string(id))
	t.timer.Stop()
	switch {
	case fail:
		t.rollback()
		return nil, nil
	case t.failed != nil:
		return nil, t.failed
	}
	for _, p := range t.parts {
		if !p.possible() {
			t.rollback()
			return nil, amqp.Errorf(amqp.ErrCondTransactionRollback,
				"The transaction was rolled back: an entity that takes part in it has been deleted or disabled.")
		}
	}
	if refusal := ts.disk.Trouble(); refusal != nil {
		t.rollback()
		return nil, refusal
	}
	defer ts.disk.hold()()
	for _, p := range t.parts {
		p.commit()
		if s, ok := p.(sending); ok {
			sent = append(sent, s.entity)
		}
	}
	return sent, nil
}

// abandon rolls back what was declared over a link that is gone: nobody can
// discharge it any more.
func (ts *transactions) abandon(coordinator *server.SinkLink) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for id, t := range ts.open {
		if t.coordinator == coordinator {
			delete(ts.open, id)
			t.timer.Stop()
			t.rollback()
		}
	}
}

// rollback gives back what was kept for the parts.
func (t *transaction) rollback() {
	for _, p := range t.parts {
		p.rollback()
	}
	t.parts = nil
}

// fail rolls the transaction back before its end. The client gets the reason when
// it names the transaction next.
func (t *transaction) fail(why *amqp.Error) {
	t.rollback()
	t.failed = why
}

// enlist makes what prepare returns, at root, a part of the transaction.
func (ts *transactions) enlist(id []byte, root *Entity, messages int, prepare func() (part, *amqp.Error)) *amqp.Error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.find(id)
	switch {
	case t == nil:
		return errUnknownTransaction()
	case t.failed != nil:
		return t.failed
	case t.messages+messages > maxTransactionMessages:
		return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "A transaction holds at most %d messages.", maxTransactionMessages)
	case t.root != nil && t.root != root:
		return errSpans()
	}
	p, err := prepare()
	if err != nil {
		return err
	}
	partition, one := p.Partition()
	if !one || partition != 0 && t.partition != 0 && partition != t.partition {
		p.rollback()
		return errSpans()
	}
	t.root, t.partition = root, cmp.Or(t.partition, partition)
	t.parts = append(t.parts, p)
	t.messages += messages
	return nil
}

// doom makes it impossible to commit a transaction, because a part of it has
// failed and the client, which settled it beforehand, cannot learn it in another way.
func (ts *transactions) doom(id []byte, why *amqp.Error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.open[string(id)]; t != nil && t.failed == nil {
		t.fail(amqp.Errorf(amqp.ErrCondTransactionRollback, "The transaction was rolled back, because a part of it failed: %s", why.Description))
	}
}

func errUnknownTransaction() *amqp.Error {
	return amqp.Errorf(amqp.ErrCondTransactionUnknownID, "The transaction does not exist, or has ended.")
}

func errTransactionTimeout() *amqp.Error {
	return amqp.Errorf(amqp.ErrCondTransactionTimeout, "The transaction has not been completed within %v.", transactionTimeout)
}

// sending is messages on their way into an entity.
type sending struct {
	entity *Entity
	*queue.Reserved
	messages int
	via      bool // another entity: the partitions of this one do not matter
}

// Partition implements part.
func (s sending) Partition() (p int64, one bool) {
	if s.via {
		return 0, true
	}
	return s.Reserved.Partition()
}

func (s sending) possible() bool { return !s.entity.queue.Closed() && s.entity.mayBeSentTo() == nil }
func (s sending) rollback()      { s.Cancel() }

// commit fails only when the queue is closed between possible and here, and
// then there is nothing left that the messages could be missing from.
func (s sending) commit() {
	_, _ = s.Send()
	s.entity.activities.incoming.Add(uint64(s.messages))
}

// stating is the state of a session that is to be set.
type stating struct{ *queue.HeldState }

func (s stating) possible() bool { return s.Possible() }
func (s stating) commit()        { _ = s.Set() } // see sending
func (s stating) rollback()      { s.Cancel() }

// settling is a settlement, or the cancelling of scheduled messages.
type settling struct {
	queue *queue.Queue
	*queue.Held
	otherwise *queue.Settlement // what a rollback does to the deliveries; nil: their locks go on
	committed func()            // called after the commit, may be nil
}

func (s settling) possible() bool { return !s.queue.Closed() }

func (s settling) commit() {
	_ = s.Settle() // see sending
	if s.committed != nil {
		s.committed()
	}
}

// rollback fails only when the messages have gone with their queue.
func (s settling) rollback() {
	if s.otherwise == nil {
		s.Cancel()
		return
	}
	_ = s.SettleEach(func(int) *queue.Settlement { return s.otherwise })
}
