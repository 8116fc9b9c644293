// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// A Link describes a link of a client to [Config.Watch] and the other callbacks.
type Link struct {
	// Class is the purpose of the link and its entity. It is zero for a link that is in no
	// table; Unlisted has the reason. Such a link goes upstream where the tokens of clients do,
	// unless Config.Refuse refuses it.
	Class    rights.Class
	Unlisted *amqp.Error
	// Receiver: the client receives. Of such links only those from a management node are watched.
	Receiver bool
	// Name is the name of the link, unique per client and direction. Only the connection ties
	// together the two links of a management node.
	Name string
	// Conn is a number that all links of one client connection share, and no other.
	Conn uint64
}

// A Delivery is one complete message on its way over a watched link: to
// upstream when the client sends, to the client when it receives.
type Delivery struct {
	// Payload is the encoded message. The watcher may change or replace it until
	// the delivery may go on: in Deliver, or until it calls Resume for a QueuedDelivery.
	Payload []byte
	Format  uint32 // the message format, amqp.BatchMessageFormat for a batch
	Settled bool   // its sender expects no outcome
	// State is the sender's delivery state: a *amqp.TransactionalState when it is part of a
	// transaction.
	State amqp.DeliveryState
	Tag   []byte
	// MaxSize is the maximum size of the payload at its receiver, also after the watcher has
	// changed it. 0 = no bound.
	MaxSize uint64
}

// A Watcher sees the deliveries of one link, each complete and in order. Calls
// for one link come one at a time, from the goroutines that read, and must not
// block: all links of the connection wait meanwhile.
type Watcher interface {
	// Deliver is called for each delivery, and may change its payload. It returns a
	// DeliveryHandler when the delivery or its disposition has to wait for more than the other
	// end; nil lets both pass.
	//
	// With an error the delivery goes no further. The sender gets the outcome rejected with that
	// error. A request to a management node gets a response with the error, if the client waits
	// for a response.
	Deliver(d *Delivery) (DeliveryHandler, *amqp.Error)

	// Detached is called once, when the link is gone. Its pending deliveries have been dropped:
	// Resume and Answer have no effect from then on.
	Detached()
}

// A DeliveryHandler decides what the sender of one delivery gets as its outcome, and when.
type DeliveryHandler interface {
	// Settled is called with the outcome of the other end. answerer passes it to the sender:
	// unchanged for nil, otherwise as rejected with the error. For a delivery that was sent
	// settled the outcome is nil, and answerer has no effect. Settled is not called for a
	// delivery that Before refused, nor after the link was detached.
	//
	// The outcome of a request to a management node is that of its response, if there is a link for
	// responses. It is accepted for a status of 2xx, otherwise rejected with the response's condition.
	// Then answerer lets the response pass, or replaces it by one with the error.
	Settled(outcome amqp.DeliveryState, answerer Answerer)
}

// A QueuedDelivery is a DeliveryHandler that may make the delivery itself wait.
type QueuedDelivery interface {
	DeliveryHandler
	// Before is called before the delivery goes on. It returns false when the delivery may go on
	// at once. Otherwise the delivery waits, and with it all that follow in its session, until
	// Resume is called, once and from any goroutine. With an error it goes no further, and the
	// sender gets rejected with that error.
	Before(Resumer) (wait bool)
}

// A Resumer lets a delivery go on, see QueuedDelivery. It is an interface because a function would
// have to be allocated for every delivery.
type Resumer interface{ Resume(refusal *amqp.Error) }

// An Answerer gives one sender its outcome. It is an interface for the same reason.
type Answerer interface {
	// Answer is called once, from any goroutine; see DeliveryHandler.
	Answer(*amqp.Error)
}

// An AnswerFunc is an Answerer.
type AnswerFunc func(*amqp.Error)

// Answer calls f.
func (f AnswerFunc) Answer(e *amqp.Error) { f(e) }

// discardAnswer is for deliveries whose sender waits for no outcome.
var discardAnswer Answerer = AnswerFunc(func(*amqp.Error) {})
