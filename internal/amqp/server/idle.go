// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// firstLinkTimeout bounds the time to the first link of a connection, as in Service Bus, if
// Config.ConnIdleTimeout is set.
const firstLinkTimeout = time.Minute

// quietTime is how long a session may be quiet until its peer is asked for its state, as in Service
// Bus.
const quietTime = 3 * time.Minute

// idleRules ends idle links and connections without links. It belongs to the connection's mutex.
//
// The timer is a wake-up, armed for the earliest possible end; checkIdle decides.
type idleRules struct {
	link, conn time.Duration // 0: for ever
	timer      *time.Timer   // nil until open
	hadLink    bool
	since      time.Time // the last link went, or the connection opened
}

// begin starts to watch a connection that has just been opened.
func (r *idleRules) begin(c *Conn) {
	r.link, r.conn = max(c.cfg.LinkIdleTimeout, 0), max(c.cfg.ConnIdleTimeout, 0)
	r.since = time.Now()
	r.timer = time.AfterFunc(c.idleForLocked(r.since), c.checkIdle)
}

func (r *idleRules) end() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// Touch marks the link of that name as in use, although nothing passes over it.
func (c *Conn) Touch(name string) {
	if c.cfg.LinkIdleTimeout <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, role := range []amqp.Role{amqp.RoleSender, amqp.RoleReceiver} {
		if l := c.links[linkKey{name, role}]; l != nil {
			l.touchLocked()
		}
	}
}

// touchLocked records that something has passed over the link.
func (l *link) touchLocked() {
	if l.s.c.rules.link > 0 {
		l.used = time.Now()
	}
}

// checkIdle ends links and connections whose time is over, and asks quiet peers for their state.
func (c *Conn) checkIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire.State != transport.Open {
		return
	}
	now, r := time.Now(), &c.rules
	for _, l := range c.links {
		if c.linkIdleLocked(l, now) <= 0 {
			l.detachLocked(l.errIdle(r.link))
		}
	}
	if limit := r.limit(); r.conn > 0 && !c.inUseLocked() && now.Sub(r.since) >= limit {
		c.closeLocked(amqp.Errorf(amqp.ErrCondConnectionForced,
			"The connection was closed by container '%s' because it did not have any active links in the past %d milliseconds. %s",
			c.cfg.ContainerID, limit.Milliseconds(), tracking(c.cfg.ContainerID, "gateway0")))
		return
	}
	for _, s := range c.channels {
		if s.quietLocked(now) <= 0 {
			s.heard, c.flow.Echo = now, true
			s.putFlowLocked(&c.flow)
		}
	}
	r.timer.Reset(c.idleForLocked(now))
}

// errIdle is how the service parts with an idle link.
func (l *link) errIdle(after time.Duration) *amqp.Error {
	short, kind := "consumer", "AmqpMessageConsumer"
	if l.sink != nil {
		short, kind = "publisher", "AmqpMessagePublisher"
	}
	id := fmt.Sprintf("G0:%d:%s", l.s.c.id, l.attach.Name)
	return amqp.Errorf(amqp.ErrCondLinkDetachForced,
		"The link '%s' is force detached. Code: %s(link%d). Details: %s.IdleTimerExpired: Idle timeout: %s. %s",
		id, short, l.number, kind, clockOf(after), tracking(l.s.c.cfg.ContainerID, id))
}

// tracking is what ends the service's errors.
func tracking(id, system string) string {
	return fmt.Sprintf("TrackingId:%s, SystemTracker:%s, Timestamp:%s", id, system, time.Now().UTC().Format("2006-01-02T15:04:05"))
}

// limit is how long the connection may be without links.
func (r *idleRules) limit() time.Duration {
	if !r.hadLink {
		return min(r.conn, firstLinkTimeout)
	}
	return r.conn
}

// inUseLocked reports whether a link keeps the connection open.
func (c *Conn) inUseLocked() bool {
	for _, l := range c.links {
		if !l.reply().Resident {
			return true
		}
	}
	return false
}

// linkIdleLocked returns the time until l has been idle for too long.
func (c *Conn) linkIdleLocked(l *link, now time.Time) time.Duration {
	if c.rules.link == 0 || l.state != linkAttached || l.reply().Resident {
		return quietTime
	}
	return c.rules.link - now.Sub(l.used)
}

// quietLocked returns the time until the peer of s has been quiet for too long.
func (s *Session) quietLocked(now time.Time) time.Duration {
	if s == nil || s.state != sessionOpen {
		return quietTime
	}
	return quietTime - now.Sub(s.heard)
}

// idleForLocked returns the time until something may be due.
func (c *Conn) idleForLocked(now time.Time) time.Duration {
	const atLeast = 10 * time.Millisecond // never spin, even if a clock jumps
	r, next := &c.rules, quietTime
	if r.conn > 0 {
		next = min(next, r.limit())
		if !c.inUseLocked() {
			next = min(next, r.limit()-now.Sub(r.since))
		}
	}
	if r.link > 0 {
		next = min(next, r.link)
	}
	for _, s := range c.channels {
		next = min(next, s.quietLocked(now))
	}
	for _, l := range c.links {
		next = min(next, c.linkIdleLocked(l, now))
	}
	return max(next, atLeast)
}

// clockOf writes d as hours, minutes and seconds, as the service does.
func clockOf(d time.Duration) string {
	return time.Time{}.Add(d).Format("15:04:05")
}
