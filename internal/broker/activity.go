// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"

	"overdue/internal/amqp"
)

// An Activity is one thing that a client did, or was refused.
type Activity struct {
	Operation Operation
	Namespace *Namespace
	// Path is the address of the link, the audience of the token, or the path of the request, as the
	// client names it.
	Path string
	// Detail is the role of a link, the outcome of a settlement, or what a request asks for.
	Detail   string
	Messages int // sent, received or settled
	Client   fmt.Stringer
	Refusal  *amqp.Error // nil: it was done
}

// IsMissing reports whether the client named an entity that does not exist.
func (a *Activity) IsMissing() bool {
	return a.Refusal != nil && a.Refusal.Condition == amqp.ErrCondNotFound && a.Entity() != ""
}

// Entity returns the path of the entity that Path names.
func (a *Activity) Entity() string { return parseAddress(a.Path).Entity() }

// Watch calls f with everything that clients do from now on. It has to be called before clients are
// served. They wait for f, which must not block.
func (b *Broker) Watch(f func(Activity)) { b.watcher = f }

// Note counts an activity, and lets the watcher know of it. Operations over HTTP are noted by those
// who serve them.
func (b *Broker) Note(a Activity) {
	if a.Refusal != nil {
		b.refusals.add(string(a.Refusal.Condition))
	}
	if b.watcher != nil {
		b.watcher(a)
	}
}

// note is Note for the client of a connection.
func (c *conn) note(a Activity) {
	if a.Namespace == nil {
		a.Namespace = c.ns
	}
	a.Client = c.peer.RemoteAddr()
	c.b.Note(a)
}

// noteAttach notes that a link was opened or refused.
func (c *conn) noteAttach(at *amqp.Attach, refusal *amqp.Error) {
	role := "sender"
	if at.Role == amqp.RoleReceiver {
		role = "receiver"
	}
	c.note(Activity{
		Operation: OnAttach,
		Path:      addressOf(at),
		Detail:    role,
		Refusal:   refusal,
	})
}

// addressOf is where the messages of a link come from or go to.
func addressOf(at *amqp.Attach) string {
	switch {
	case at.Role == amqp.RoleReceiver && at.Source != nil:
		return at.Source.Address
	case at.Role == amqp.RoleSender && at.Target != nil:
		return at.Target.Address
	}
	return ""
}
