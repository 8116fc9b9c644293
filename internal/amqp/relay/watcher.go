// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// A Link is what a client attaches, as [Config.Watch] sees it.
type Link struct {
	// Class says what the link is for, and about what. It is the zero one of a link
	// that is not known, which Unlisted tells more of: such a link goes upstream where
	// the tokens of clients do, unless Config.Refuse refuses it.
	Class    rights.Class
	Unlisted *amqp.Error
	// Receiver says that the client receives, which only links from a management
	// node are watched for.
	Receiver bool
	// Name is the link's, unique per client and direction. Nothing else ties the
	// two links of a management node together but the connection.
	Name string
	// Conn is a number that all links of one client connection share, and no other.
	Conn uint64
}

// A Delivery is one complete message on its way over a watched link: to
// upstream when the client sends, to the client when it receives.
type Delivery struct {
	// Payload is the encoded message. The watcher may change or replace it until
	// the delivery may go on: in Deliver, or until it calls Resume where the delivery
	// waits (see DeliveryHandler).
	Payload []byte
	Format  uint32 // the message format, amqp.BatchMessageFormat for a batch
	Settled bool   // its sender does not want to know the outcome
	// State is what the sender says of it: a *amqp.TransactionalState when it is
	// part of a transaction.
	State amqp.DeliveryState
	Tag   []byte
	// MaxSize is the most bytes that the payload may have where it goes, also after the
	// watcher has changed it. 0 = no bound.
	MaxSize uint64
}

// A Watcher sees the deliveries of one link, each complete and in order. Calls
// for one link come one at a time, from the goroutines that read, and must not
// block: all links of the connection wait meanwhile.
type Watcher interface {
	// Deliver is told of a delivery, and may change its payload. It returns a DeliveryHandler
	// when the delivery or its disposition has to wait for more than the other end;
	// nil lets it pass.
	//
	// With an error nothing goes on: the sender gets rejected with it, or where it is
	// a request to a management node whose response the client waits for, a
	// response that says so.
	Deliver(d *Delivery) (DeliveryHandler, *amqp.Error)

	// Detached is told that the link is gone, once. What is held has been dropped: a
	// Resume or an Answer that comes now has no effect.
	Detached()
}

// DeliveryHandler is what the relay tells about a delivery whose sender has to wait for more than the other
// end.
type DeliveryHandler interface {
	// Settled tells the outcome that the other end has come to. reply lets it pass to the
	// sender: as it is for nil, else as rejected with the error. The outcome is nil for a
	// delivery that was sent settled and has gone on, and reply has no effect then. Settled is
	// not called for what Before refused, nor after the link was detached.
	//
	// A request to a management node has the outcome that its response states, if
	// there is a link for that: accepted for a status of 2xx, else rejected with the
	// response's condition. reply lets the response pass then, or has it replaced by
	// one with the error.
	Settled(outcome amqp.DeliveryState, answerer Answerer)
}

// QueuedDelivery is a DeliveryHandler that may want the delivery itself to wait.
type QueuedDelivery interface {
	DeliveryHandler
	// Before holds the delivery itself back, and with it whatever follows in its
	// session. It returns false when the delivery may go on at once. Otherwise
	// Resume is called, once and from any goroutine: when the delivery may go on, or
	// with an error when it may not. Then nothing goes on, and the sender gets
	// rejected with the error.
	Before(Resumer) (wait bool)
}

// A Resumer lets a delivery go on, see QueuedDelivery. It is no function, which would have to be made for
// every delivery.
type Resumer interface{ Resume(refusal *amqp.Error) }

// A Answerer lets one sender know. It is no function either.
type Answerer interface {
	// Answer is called once, from any goroutine; see DeliveryHandler.
	Answer(*amqp.Error)
}

// A AnswerFunc is a Answerer.
type AnswerFunc func(*amqp.Error)

// Answer calls f.
func (f AnswerFunc) Answer(e *amqp.Error) { f(e) }

// discardAnswer is the reply to who does not listen.
var discardAnswer Answerer = AnswerFunc(func(*amqp.Error) {})
