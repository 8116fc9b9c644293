// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/monitorqueue"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

const (
	endpointAMQP = "amqp"

	// transactionTime is how long Service Bus keeps a transaction open. It enqueues the messages
	// when the transaction ends.
	transactionTime = 2 * time.Minute
)

// watch chooses the links of the AMQP endpoint to watch. These are links that send to an entity or
// schedule messages there, unless it is excluded, and those that would write to the monitor queue.
// All other links pass untouched. Each send asks for the entity's settings: this call must not wait
// for them, and the entity may be deleted and created again while the link is open.
func (p *Proxy) watch(l relay.Link) relay.Watcher {
	entity := l.Class.Entity()
	management := l.Class.Kind == rights.Requests
	switch at := l.Class.Address; {
	case l.Class.Kind == rights.SendNowhere:
		return guardNowhere(at)
	case l.Class.Kind != rights.Send && !management:
		return nil
	case at.SubQueue != address.Main:
		return guardDeadLetters(at)
	case p.isMonitorQueue(entity):
		return p.guardMonitorQueue(at, entity, management)
	case p.excluded(entity):
		return nil
	}
	ctx, detach := context.WithCancel(context.Background())
	at := sendLink{p: p, at: l.Class.Address, entity: entity, ctx: ctx, detach: detach, sends: &linkSends{all: map[*delivery]struct{}{}}}
	if management {
		at.timeout = requestTime
		return &managementLink{at}
	}
	return &at
}

// refuseLink refuses links that no table of rights lists, since they could send without being
// watched. It also keeps apps from receiving companions. The endpoint has the sidecar's own
// rights, and a companion that an app takes from the monitor queue is a deadline that nobody
// keeps.
func (p *Proxy) refuseLink(l relay.Link) *amqp.Error {
	at := l.Class.Address
	switch {
	case l.Class.Kind == rights.Refused:
		return l.Unlisted
	case l.Class.Kind != rights.Receive || at.SubQueue != address.Main || !p.isMonitorQueue(at.Entity()):
		return nil
	}
	return amqp.Errorf(amqp.ErrCondNotAllowed, "'%s' is the monitor queue, which gives no messages to apps.", at.Entity())
}

func (p *Proxy) isMonitorQueue(entity string) bool {
	return monitorqueue.Of(p.cfg.MonitorQueue, 1).Has(entity) // as well as any other of them
}

// A sendLink watches the deliveries of one link to an entity that may be monitored.
type sendLink struct {
	p      *Proxy
	at     address.Address // of the link
	entity string
	ctx    context.Context // canceled when the link is gone: ends the waits of its deliveries
	detach context.CancelFunc
	// timeout bounds the wait for the broker's outcome. 0 = no bound while the link lives.
	timeout time.Duration

	sends *linkSends
}

// Detached is called by the relay when the link is gone.
func (l *sendLink) Detached() {
	l.detach()
	l.sends.end()
}

// A guard judges the deliveries of a link over which nothing is sent to a monitored entity: it
// returns nil for those that pass.
type guard func(*relay.Delivery) *amqp.Error

// Detached has nothing to do.
func (guard) Detached() {}

// Deliver passes the delivery or refuses it.
func (g guard) Deliver(d *relay.Delivery) (relay.DeliveryHandler, *amqp.Error) { return nil, g(d) }

// guardNowhere is the guard of a link to an address that takes no messages. The namespace refuses
// such a link. A delivery that comes first, or although the namespace did not refuse, goes no
// further.
func guardNowhere(at address.Address) guard {
	return func(*relay.Delivery) *amqp.Error {
		return amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to send to '%s'.", at)
	}
}

// guardDeadLetters is the guard of the management node of a dead-letter queue, where nothing can be
// sent. It refuses operations that no table of rights lists.
func guardDeadLetters(at address.Address) guard {
	return func(d *relay.Delivery) *amqp.Error {
		_, _, err := rights.Operation(at, d.Payload)
		return err
	}
}

// guardMonitorQueue keeps apps from writing to the monitor queue; they may peek. The right to send
// work messages must not let an app forge companions, nor cancel, settle or delete those of other
// apps.
func (p *Proxy) guardMonitorQueue(at address.Address, entity string, management bool) guard {
	return func(d *relay.Delivery) *amqp.Error {
		if management {
			if operation, _, _ := rights.Operation(at, d.Payload); operation == rights.PeekMessage {
				return nil
			}
		}
		err := rest.BadRequest("%s is the monitor queue, which takes no messages of apps.", rest.Quoted(entity))
		p.metrics.sent(endpointAMQP, entity, 1, 0, err)
		return refusal(err, entity)
	}
}
