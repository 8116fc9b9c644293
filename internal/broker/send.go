// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
)

// A sender takes what a client sends to a queue or a topic.
type sender struct {
	conn   *conn
	link   *server.SinkLink
	via    *Entity // that the link is attached to
	entity *Entity // that the messages go to
}

// linkMaxBatchSize is the link property that says how large a batch may be. Go
// prefers it to max-message-size. Only Premium is known to state it; where it
// equals max-message-size it changes nothing.
const linkMaxBatchSize = "com.microsoft:max-message-batch-size"

func batchProperties(size uint64) amqp.Raw {
	properties, start := amqp.BeginMap(nil)
	properties = amqp.AppendSymbol(properties, linkMaxBatchSize)
	properties = amqp.AppendUlong(properties, size)
	return amqp.EndMap(properties, start, 1)
}

// Deliver stores one message or one batch and says what became of it.
func (s *sender) Deliver(d *server.Delivery) {
	if f := s.conn.ns.faults.hit(OnSend, s.entity.path, ""); f != nil {
		s.conn.suffer(f, s.link, func(refusal *amqp.Error) {
			if refusal == nil {
				refusal = s.store(d)
			} else {
				s.note(0, refusal)
			}
			if !f.Silent {
				s.settle(d, refusal)
			}
		})
		return
	}
	s.settle(d, s.store(d))
}

// note notes that messages were sent or refused.
func (s *sender) note(messages int, refusal *amqp.Error) {
	s.conn.note(Activity{
		Operation: OnSend,
		Path:      s.entity.path,
		Messages:  messages,
		Refusal:   refusal,
	})
}

func (s *sender) settle(d *server.Delivery, refusal *amqp.Error) {
	txn, _ := d.State.(*amqp.TransactionalState)
	switch {
	case d.Settled && refusal != nil && s.conn.b.disk.Trouble() != nil:
		s.link.Detach(s.entity.tracked(refusal)) // there is no other way to say so
	case d.Settled && txn != nil && refusal != nil:
		s.conn.txns.doom(txn.TxnID, refusal)
	case d.Settled && s.conn.b.disk.durable():
		// Nobody asks. But a disk that is slow must not let them pile up beyond the credit of the link.
		s.link.Hold(1)
		s.conn.b.disk.after(func(*amqp.Error) { s.link.Hold(-1) })
	case d.Settled: // nobody asks
	case refusal != nil:
		s.link.Settle(d, s.entity.rejected(refusal))
	case s.conn.b.disk.durable():
		s.settleDurably(d, txn)
	default:
		s.link.Settle(d, acceptedIn(txn))
	}
}

// settleDurably accepts d once it is on disk.
func (s *sender) settleDurably(d *server.Delivery, txn *amqp.TransactionalState) {
	s.conn.b.disk.after(func(refusal *amqp.Error) {
		if refusal != nil {
			s.link.Settle(d, s.entity.rejected(refusal))
			return
		}
		s.link.Settle(d, acceptedIn(txn))
	})
}

// Detached forgets the link: nothing of a sender outlives its deliveries.
func (s *sender) Detached(*amqp.Error) { s.entity.links.remove(s.link) }

func (s *sender) store(d *server.Delivery) *amqp.Error {
	messages, refusal := s.storeAll(d)
	s.note(messages, refusal)
	return refusal
}

// storeAll stores the messages of a delivery and returns how many there are.
func (s *sender) storeAll(d *server.Delivery) (n int, err *amqp.Error) {
	txn, err := transactionOf(d.State)
	if err != nil {
		return 0, err
	}
	var one [1]queue.Message
	messages := one[:]
	switch d.Format {
	case 0:
		one[0], err = message.Read(d.Payload)
	case amqp.BatchMessageFormat:
		if most := s.entity.maxBatchSize(); uint64(len(d.Payload)) > most {
			return 0, amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "The batch has %d bytes, %d is the most.", len(d.Payload), most)
		}
		messages, err = message.ReadBatch(d.Payload)
		if s.conn.b.cfg.Quirks.Has(quirk.BatchUnscheduled) {
			unschedule(messages)
		}
	default:
		err = amqp.Errorf(amqp.ErrCondNotImplemented, "The message format 0x%x is not supported.", d.Format)
	}
	if err != nil {
		return 0, err
	}
	if txn != nil {
		return len(messages), s.conn.txns.send(txn.TxnID, s.conn.txns.rootFor(s.link.Session(), s.via), s.entity, messages)
	}
	return len(messages), s.entity.send(false, messages...)
}
