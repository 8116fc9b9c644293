// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/sas"
)

// A Kind says what a link is for.
type Kind uint8

// The kinds of links, from the client's side.
const (
	Refused        Kind = iota // none of the others
	Send                       // sends messages to a queue or topic
	SendNowhere                // would send to what takes no messages, which the namespace refuses in its own words
	Receive                    // receives messages of a queue, a subscription or a sub-queue
	Requests                   // sends requests to a management node
	Responses                  // receives the responses to those
	TokenRequests              // sends tokens to $cbs
	TokenResponses             // receives what became of those
	Coordinator                // begins and ends transactions
)

// A Need is a right that somebody has to have.
type Need struct {
	Path  string     // of the node it is about, as address.Address.String returns it; "" = the namespace
	OneOf sas.Rights // each of which will do
}

// A Class is what a link is: all that anybody has to know of its attach to judge it and to treat
// it.
type Class struct {
	Kind    Kind
	Address address.Address // what the link is attached to; zero for Coordinator
	// Destination is where a sender has its messages passed on to by way of Address; zero = nowhere.
	Destination address.Address
	Needs       []Need // all of them
}

// Sender reports whether the client sends over the link.
func (c *Class) Sender() bool {
	switch c.Kind {
	case Send, SendNowhere, Requests, TokenRequests, Coordinator:
		return true
	}
	return false
}

// Entity is the path of the queue, topic or subscription that messages are sent to or received
// from, or that is managed. Of a sender by way of another it is the destination.
func (c *Class) Entity() string {
	if !c.Destination.IsNamespace() {
		return c.Destination.Entity()
	}
	return c.Address.Entity()
}

// TransferDestination is the property of a sender's attach that names the entity to which messages
// are passed on by way of the link's target. Source: azure-sdk-for-net, AmqpClientConstants.cs.
const TransferDestination = "com.microsoft:transfer-destination-address"

// A terminus is what a client attaches to: the target of its sender, the source of its receiver.
type terminus uint8

const (
	toNothing terminus = iota
	toNoAddress
	toDynamic
	toCoordinator
	toEntity // a queue or a topic
	toSubscription
	toSubQueue
	toManagement
	toCBS
)

// links is the table: what a sender or a receiver may attach to, and which right opens it. A link
// to what is not here is refused. No right is needed for $cbs, where rights are proven, nor for the
// coordinator. Transactional work is sent and settled over links that have needs, and the Java SDK
// opens the coordinator before it puts any token. With management nodes each operation has its own,
// see Operation, so any one opens the link.
var links = map[amqp.Role]map[terminus]struct {
	kind  Kind
	oneOf sas.Rights
}{
	amqp.RoleSender: {
		toEntity:       {Send, sas.Send},
		toSubscription: {SendNowhere, sas.Send},
		toSubQueue:     {SendNowhere, sas.Send},
		toManagement:   {Requests, sas.All},
		toCBS:          {TokenRequests, 0},
		toCoordinator:  {Coordinator, 0},
	},
	amqp.RoleReceiver: {
		toEntity:       {Receive, sas.Listen},
		toSubscription: {Receive, sas.Listen},
		toSubQueue:     {Receive, sas.Listen},
		toManagement:   {Responses, sas.All},
		toCBS:          {TokenResponses, 0},
	},
}

// Classify says what a link of a client is, by its role, its source and its target together. The
// error is what the client is refused with: the table has no such link, or its attach can be read
// in two ways.
func Classify(a *amqp.Attach) (Class, *amqp.Error) {
	to, at, err := terminusOf(a)
	if err != nil {
		return Class{}, err
	}
	row, ok := links[a.Role][to]
	if !ok {
		return Class{}, unlisted(a.Role, to)
	}
	c := Class{Kind: row.kind, Address: at}
	if row.oneOf != 0 {
		c.Needs = append(c.Needs, Need{at.String(), row.oneOf})
	}
	if c.Destination, err = destinationOf(a, row.kind); err != nil {
		return Class{}, err
	}
	if !c.Destination.IsNamespace() {
		c.Needs = append(c.Needs, Need{c.Destination.String(), sas.Send})
	}
	return c, nil
}

// terminusOf reads where a link leads. The other end of a link is the client's own, which calls it
// what it likes, unless it is a coordinator: that is one of a sender.
func terminusOf(a *amqp.Attach) (to terminus, at address.Address, err *amqp.Error) {
	if a.Coordinator != nil {
		if a.Role != amqp.RoleSender {
			err = amqp.Errorf(amqp.ErrCondNotAllowed, "A receiver has no transaction coordinator for its target.")
		}
		return toCoordinator, at, err
	}
	var text string
	var other amqp.Raw
	var dynamic bool
	switch {
	case a.Role == amqp.RoleSender && a.Target != nil:
		text, other, dynamic = a.Target.Address, a.Target.OtherAddress, a.Target.Dynamic
	case a.Role == amqp.RoleReceiver && a.Source != nil:
		text, other, dynamic = a.Source.Address, a.Source.OtherAddress, a.Source.Dynamic
		if key, repeated := amqp.RepeatedKey(a.Source.Filter); repeated {
			return 0, at, amqp.Errorf(amqp.ErrCondInvalidField, "The filter of the link states %.100q more than once.", key)
		}
	default:
		return toNothing, at, nil
	}
	switch {
	case dynamic:
		return toDynamic, at, nil
	case other != nil:
		return 0, at, amqp.Errorf(amqp.ErrCondInvalidField, "The address of the link is not a string.")
	case text == "":
		return toNoAddress, at, nil
	}
	at, plain := address.Parse(text)
	switch {
	case plain != nil:
		return 0, at, NotPlain(plain)
	case at.IsNamespace():
		return toNoAddress, at, nil
	case at.Node == address.CBS:
		return toCBS, at, nil
	case at.Node == address.Management:
		return toManagement, at, nil
	case at.SubQueue != address.Main:
		return toSubQueue, at, nil
	case at.Subscription != "":
		return toSubscription, at, nil
	}
	return toEntity, at, nil
}

// destinationOf reads where a sender has its messages passed on to.
func destinationOf(a *amqp.Attach, kind Kind) (to address.Address, err *amqp.Error) {
	if key, repeated := amqp.RepeatedKey(a.Properties); repeated {
		return to, amqp.Errorf(amqp.ErrCondInvalidField, "The properties of the link state %.100q more than once.", key)
	}
	r, stated := amqp.MapLookup(a.Properties, TransferDestination)
	if !stated || r.Null() {
		return to, nil
	}
	to, plain := address.Parse(r.String())
	if kind != Send || r.Err() != nil || plain != nil || !to.TakesMessages() {
		return to, amqp.Errorf(amqp.ErrCondInvalidField, "The link property '%s' names no entity to send to.", TransferDestination)
	}
	return to, nil
}

// NotPlain is how a link or a request is refused whose address the grammar refuses: there is
// nothing of that name.
func NotPlain(err error) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotFound, "The messaging entity could not be found: the address %v.", err)
}

// unlisted refuses a link that the table does not have.
func unlisted(role amqp.Role, to terminus) *amqp.Error {
	switch {
	case to == toNothing && role == amqp.RoleSender:
		return amqp.Errorf(amqp.ErrCondInvalidField, "The link has no target.")
	case to == toNothing:
		return amqp.Errorf(amqp.ErrCondInvalidField, "The link has no source.")
	case to == toDynamic:
		return amqp.Errorf(amqp.ErrCondNotImplemented,
			"Temporary queues and topics are not supported. Create a queue that is deleted when it is idle (AutoDeleteOnIdle).")
	case to == toNoAddress && role == amqp.RoleSender:
		return amqp.Errorf(amqp.ErrCondNotImplemented,
			"A sender without an address, which names one in each message, is not supported. Attach a sender for each entity.")
	case to == toNoAddress:
		return amqp.Errorf(amqp.ErrCondInvalidField, "The source of the link has no address.")
	}
	return amqp.Errorf(amqp.ErrCondNotAllowed, "There is no such link.")
}
