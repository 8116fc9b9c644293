// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"strings"
	"sync"
	"time"

	codec "overdue/internal/amqp"
)

// maxSenders bounds the links that are kept open to send over, since names of entities come from
// clients and from the reply-to of messages. There are more only while sends to more entities are
// in flight.
const maxSenders = 256

// senders keeps a sender for each entity, all of them on the connection for sending.
type senders struct {
	mu     sync.Mutex
	closed bool
	byName map[string]*keptSender // by the entity's name in lower case
}

// A keptSender is a sender with the number of sends that use it.
type keptSender struct {
	*ReconnectingSender
	name     string
	users    int
	lastUsed time.Time
}

// Send returns when the broker has accepted an encoded message for a queue or topic. Where errors
// may pass it tries again, as a [ReconnectingSender] does.
func (n *Namespace) Send(ctx context.Context, entity string, message []byte) error {
	return n.transmit(ctx, entity, 0, message)
}

// SendBatch is Send for several messages, of which the broker takes all or none. batch is an
// encoded message whose data sections are encoded messages.
func (n *Namespace) SendBatch(ctx context.Context, entity string, batch []byte) error {
	return n.transmit(ctx, entity, codec.BatchMessageFormat, batch)
}

func (n *Namespace) transmit(ctx context.Context, entity string, format uint32, payload []byte) error {
	s, err := n.borrow(entity)
	if err != nil {
		return err
	}
	err = s.transmit(ctx, format, payload)
	n.giveBack(s, err)
	return err
}

// borrow returns the sender to an entity, and counts one user. It opens no link.
func (n *Namespace) borrow(entity string) (*keptSender, error) {
	name := strings.ToLower(entity)
	n.senders.mu.Lock()
	defer n.senders.mu.Unlock()
	if n.senders.closed {
		return nil, ErrClosed
	}
	s := n.senders.byName[name]
	if s == nil {
		if len(n.senders.byName) >= maxSenders {
			n.senders.dropOldestLocked()
		}
		s = &keptSender{
			ReconnectingSender: &ReconnectingSender{ns: n, entity: entity, opening: newTurn()},
			name:               name,
		}
		n.senders.byName[name] = s
	}
	s.users++
	return s, nil
}

// giveBack ends a use. An entity that has refused a link is forgotten with its last user, so that
// wrong names do not push the links of others out.
func (n *Namespace) giveBack(s *keptSender, err error) {
	n.senders.mu.Lock()
	defer n.senders.mu.Unlock()
	s.users--
	s.lastUsed = time.Now()
	if s.users == 0 && err != nil && !s.isOpen() {
		n.senders.dropLocked(s)
	}
}

// dropOldestLocked closes the sender that has been unused the longest, if there is one.
func (p *senders) dropOldestLocked() {
	var oldest *keptSender
	for _, s := range p.byName {
		if s.users == 0 && (oldest == nil || s.lastUsed.Before(oldest.lastUsed)) {
			oldest = s
		}
	}
	if oldest != nil {
		p.dropLocked(oldest)
	}
}

func (p *senders) dropLocked(s *keptSender) {
	delete(p.byName, s.name)
	if s.isOpen() {
		go func() { _ = s.Close(context.Background()) }() // nobody uses it, and Close bounds it
	}
}

// close lets no send begin any more.
func (p *senders) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}
