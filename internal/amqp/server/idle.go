// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"overdue/internal/amqp"
)

// firstLinkTimeout bounds the time to the first link of a connection, as in Service Bus, if
// Config.ConnIdleTimeout is set.
const firstLinkTimeout = time.Minute

// idleRules ends idle links and connections without links. It belongs to the connection's mutex.
//
// The timer is a wake-up, armed for the earliest possible end; checkIdle decides.
type idleRules struct {
	link, conn time.Duration // 0: for ever
	timer      *time.Timer   // nil: no rules
	hadLink    bool
	since      time.Time // the last link went, or the connection opened
}

// beginIdleLocked starts to watch a connection that has just been opened.
func (c *Conn) beginIdleLocked() {
	r := &c.rules
	r.link, r.conn = max(c.cfg.LinkIdleTimeout, 0), max(c.cfg.ConnIdleTimeout, 0)
	if r.link == 0 && r.conn == 0 {
		return
	}
	r.since = time.Now()
	r.timer = time.AfterFunc(c.idleForLocked(r.since), c.checkIdle)
}

func (c *Conn) endIdleLocked() {
	if c.rules.timer != nil {
		c.rules.timer.Stop()
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
	if l.s.c.rules.timer != nil {
		l.used = time.Now()
	}
}

// checkIdle ends links and connections whose time is over.
func (c *Conn) checkIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != connOpen {
		return
	}
	now, r := time.Now(), &c.rules
	if r.link > 0 {
		for _, l := range c.links {
			if l.state == linkAttached && now.Sub(l.used) >= r.link {
				l.detachLocked(amqp.Errorf(amqp.ErrCondLinkDetachForced,
					"The link '%.128s' is force detached. Code: IdleTimerExpired. Idle timeout: %s.", l.attach.Name, clockOf(r.link)))
			}
		}
	}
	if limit := r.limit(); r.conn > 0 && len(c.links) == 0 && now.Sub(r.since) >= limit {
		c.closeLocked(amqp.Errorf(amqp.ErrCondConnectionForced,
			"The connection was inactive for more than the allowed %d milliseconds and is closed.", limit.Milliseconds()))
		return
	}
	r.timer.Reset(c.idleForLocked(now))
}

// limit is how long the connection may be without links.
func (r *idleRules) limit() time.Duration {
	if !r.hadLink {
		return min(r.conn, firstLinkTimeout)
	}
	return r.conn
}

// idleForLocked returns the time until the next possible end.
func (c *Conn) idleForLocked(now time.Time) time.Duration {
	const atLeast = 10 * time.Millisecond // never spin, even if a clock jumps
	r := &c.rules
	next := 24 * time.Hour
	if r.conn > 0 {
		next = r.limit()
		if len(c.links) == 0 {
			next -= now.Sub(r.since)
		}
	}
	if r.link > 0 {
		next = min(next, r.link)
		for _, l := range c.links {
			if l.state == linkAttached {
				next = min(next, r.link-now.Sub(l.used))
			}
		}
	}
	return max(next, atLeast)
}

// clockOf writes d as hours, minutes and seconds, as the service does.
func clockOf(d time.Duration) string {
	return time.Time{}.Add(d).Format("15:04:05")
}
