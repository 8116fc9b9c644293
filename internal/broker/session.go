// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"math"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

const (
	// sessionFilter is the filter of a source that wants a session: its id, or null
	// for the next that is free. Go describes it, other SDKs give it plainly.
	sessionFilter = "com.microsoft:session-filter"
	// linkTimeout is the link property that says how long to wait for the next
	// session, in milliseconds.
	linkTimeout = "com.microsoft:timeout"
	// linkLockedUntil is the link property of the answer that says when the lock of
	// the session lapses: an AMQP long of .NET ticks, no timestamp.
	linkLockedUntil = "com.microsoft:locked-until-utc"
)

// defaultSessionWait is how long the service waits for the next session when the
// client does not say.
const defaultSessionWait = time.Minute

// attachSession opens a link on which the client receives the messages of the
// session that its filter asks for.
func (c *conn) attachSession(l *server.SourceLink, e *Entity, filter amqp.Raw) (server.Source, *amqp.Error) {
	id, named, refusal := wantedSession(filter)
	if refusal != nil {
		return nil, refusal
	}
	if named {
		s, err := e.queue.Sessions().Accept(id)
		if err != nil {
			return nil, errNoSession(id, err)
		}
		return c.receiveSession(l, e, s), nil
	}
	// The refusal is what ends the wait, as the end of the link does: Done is closed then.
	wait := sessionWait(l.Attach().Properties)
	timer := time.AfterFunc(wait, func() { c.refuse(l, e, errSessionTimeout(wait, l.Conn().ID())) })
	c.b.links.Go(func() {
		defer timer.Stop()
		c.acceptNext(l, e)
	})
	return nil, nil
}

// acceptNext answers a deferred attach with the next session, unless the link
// ends before there is one.
func (c *conn) acceptNext(l *server.SourceLink, e *Entity) {
	s, err := e.queue.Sessions().Next(l.Done())
	if err != nil {
		e.links.remove(l)
		if !errors.Is(err, queue.ErrCanceled) { // the timer has refused the link, or it has gone
			c.refuse(l, e, refusalOf(err))
		}
		return
	}
	granted := establishedSource(l.Attach().Source)
	if granted.Filter, err = grantSession(granted.Filter, s.ID()); err != nil {
		s.Close()
		e.links.remove(l)
		c.refuse(l, e, message.Malformed(err))
		return
	}
	l.Reply.Source = granted
	c.noteAttach(l.Attach(), nil)
	if r := c.receiveSession(l, e, s); !l.Accept(r) {
		r.Detached(nil) // the client has gone, and nobody took the session
	}
}

// refuse answers a deferred attach.
func (c *conn) refuse(l *server.SourceLink, e *Entity, why *amqp.Error) {
	c.noteAttach(l.Attach(), why)
	l.Refuse(e.tracked(why))
}

// receiveSession makes the receiver of a session that was just locked.
func (c *conn) receiveSession(l *server.SourceLink, e *Entity, s *queue.Session) *receiver {
	properties, start := amqp.BeginMap(nil)
	properties = amqp.AppendSymbol(properties, linkLockedUntil)
	properties = amqp.AppendLong(properties, ticks(s.LockedUntil()))
	l.Reply.Properties = amqp.EndMap(properties, start, 1)
	return c.newReceiver(l, e, e.queue, s, s.NewConsumer(receiveMode(l.Attach())))
}

// wantedSession reads the session filter. named says that the client wants the
// session with this id, "" included; otherwise it wants the next.
func wantedSession(filter amqp.Raw) (id string, named bool, refusal *amqp.Error) {
	r := amqp.NewReader(filter)
	value := r.Value()
	if described, ok := value.(amqp.Described); ok {
		value = described.Value
	}
	if value == nil && r.Err() == nil {
		return "", false, nil
	}
	id, isText := value.(string)
	switch {
	case !isText || r.Err() != nil:
		return "", false, amqp.Errorf(amqp.ErrCondInvalidField, "The session filter is neither a string nor null.")
	case utf8.RuneCountInString(id) > message.MaxIDLength:
		return "", false, message.TooLong("session id")
	}
	return id, true, nil
}

// grantSession puts the id of the session into the filter where the client left it open, in the
// encoding that the client chose. JavaScript compares it with a string, Go reads nothing but a
// described value.
func grantSession(filters amqp.Raw, id string) (amqp.Raw, error) {
	r := amqp.NewReader(filters)
	pairs, n := r.Map()
	out, start := amqp.BeginMap(nil)
	for range n {
		pair := pairs.Rest()
		probe := pairs
		isSession := string(probe.StringBytes()) == sessionFilter && probe.Err() == nil
		pairs.Skip()
		key := pair[:len(pair)-pairs.Len()]
		value := pairs.Raw()
		out = append(out, key...)
		if !isSession {
			out = append(out, value...)
			continue
		}
		granted := any(id)
		v := amqp.NewReader(value)
		if described, ok := v.Value().(amqp.Described); ok {
			described.Value = id
			granted = described
		}
		var err error
		if out, err = amqp.AppendValue(out, granted); err != nil {
			return nil, err
		}
	}
	return amqp.EndMap(out, start, n), message.Whole(&r, &pairs)
}

// sessionWait is how long the client wants to wait for the next session.
func sessionWait(properties amqp.Raw) time.Duration {
	r, ok := amqp.MapLookup(properties, linkTimeout)
	if !ok {
		return defaultSessionWait
	}
	ms := r.Integer()
	if r.Err() != nil || ms < 0 {
		return defaultSessionWait
	}
	return time.Duration(min(ms, math.MaxUint32)) * time.Millisecond
}

// ticks is a time as .NET counts it, in 100 ns since the year 1.
func ticks(t time.Time) int64 {
	const ticksToUnix = 621355968000000000
	return t.Unix()*1e7 + int64(t.Nanosecond()/100) + ticksToUnix
}

// errNoSession is how the accept of a named session is refused.
func errNoSession(id string, err error) *amqp.Error {
	if errors.Is(err, queue.ErrSessionLocked) {
		return amqp.Errorf(condSessionCannotBeLocked,
			"The requested session '%s' cannot be accepted. It may be locked by another receiver. ", id)
	}
	return refusalOf(err)
}

// errSessionTimeout is how the wait for the next session ends when there is none:
// Azure/azure-service-bus issue 292.
func errSessionTimeout(wait time.Duration, link uint64) *amqp.Error {
	layout := time.TimeOnly
	if wait%time.Second != 0 {
		layout += ".0000000" // as .NET writes a span of time
	}
	clock := time.Time{}.Add(wait).Format(layout)
	return amqp.Errorf(condTimeout, "The operation did not complete within the allocated time %s for object receiver%d.", clock, link)
}

// errSessionRequired refuses a plain receiver where sessions are required.
func errSessionRequired() *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotAllowed,
		"It is not possible for an entity that requires sessions to create a non-sessionful message receiver.")
}

// errSessionNotPossible refuses a receiver of sessions where there are none. The words for a
// dead-letter queue are those of azure-sdk-for-java issue 10662.
func errSessionNotPossible(a address.Address) *amqp.Error {
	if isDead(a) {
		return amqp.Errorf(amqp.ErrCondNotAllowed, "Cannot create a MessageSession for a sub-queue.")
	}
	return amqp.Errorf(amqp.ErrCondNotAllowed,
		"A sessionful message receiver cannot be created on an entity that does not require sessions. "+
			"Ensure RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior.")
}
