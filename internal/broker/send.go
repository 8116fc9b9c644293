// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/amqpserver"
	"overdue/internal/queue"
)

// A sender takes what a client sends to a queue.
type sender struct {
	link  *amqpserver.SinkLink
	queue *queue.Queue
}

// Deliver stores one message or one batch and says what became of it.
func (s *sender) Deliver(d *amqpserver.Delivery) {
	state := amqp.DeliveryState(amqp.Accepted{})
	if err := s.store(d); err != nil {
		state = &amqp.Rejected{Error: err}
	}
	if !d.Settled {
		s.link.Settle(d, state)
	}
}

// Detached has nothing to do: nothing of a sender outlives its deliveries.
func (s *sender) Detached(*amqp.Error) {}

func (s *sender) store(d *amqpserver.Delivery) *amqp.Error {
	if d.State != nil {
		return amqp.Errorf(amqp.ErrCondNotImplemented, "Transactions are not supported.")
	}
	var err *amqp.Error
	var one [1]queue.Message
	messages := one[:]
	switch d.Format {
	case 0:
		one[0], err = ingest(d.Payload)
	case amqp.BatchMessageFormat:
		messages, err = ingestBatch(d.Payload)
	default:
		err = amqp.Errorf(amqp.ErrCondNotImplemented, "The message format 0x%x is not supported.", d.Format)
	}
	if err != nil {
		return err
	}
	if _, failure := s.queue.Send(messages...); failure != nil {
		err, _ = wireError(failure)
	}
	return err
}
