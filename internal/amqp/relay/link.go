// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// A link is a link of the client with its counterpart upstream, or one that the relay answers
// itself.
type link struct {
	s      *session
	name   string
	sender int        // the side whose peer sends
	ends   [2]linkEnd // by side
	gone   bool
	left   bool // the client has detached or ended, and receives nothing more

	came coming  // the delivery that is arriving
	pass passing // the delivery that is being passed on

	awaits  bool        // waits for a token before it is attached upstream
	refusal *amqp.Error // if there is no token

	class    rights.Class // of a client's link; constant
	unlisted *amqp.Error  // the reason when it has no class
	claims   []*claim     // for the tokens that it needs upstream

	node     *nodeLinks // not nil: answered here
	watcher  Watcher
	observed *observation // nil: no observer
	watch    assembly
	skipped  uint32 // deliveries counted by the sender and not by the receiver; wraps when the receiver counts more

	requests string     // path of the management node that watched requests go to
	reply    *replyLink // not nil: a management node responds over the link
	granted  granted
	credited bool // the sender has had credit
}

// A linkEnd is the state of a link towards one peer.
type linkEnd struct {
	in, out               uint32 // handle of the peer, and ours
	sentAttach            bool
	gotDetach, sentDetach bool
}

// over reports whether both have detached the link.
func (e *linkEnd) over() bool { return e.gotDetach && e.sentDetach }

// onAttachLocked passes an attach on. The attach opens a link, or answers ours.
func (h *half) onAttachLocked(a *amqp.Attach) {
	if h.side.at == client && a.Handle > h.handleMax {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "Cannot allocate more handles to the current session or connection. "+
			"The maximum number of handles allowed is %d. Please free up resources and try again.", h.handleMax))
		return
	}
	if h.links[a.Handle] != nil {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondSessionHandleInUse, "Handle %d is attached already.", a.Handle))
		return
	}
	sender := h.side.at
	if a.Role == amqp.RoleReceiver {
		sender = 1 - sender
	}
	if h.answeredLocked(a, sender) {
		return
	}
	if h.side.at == client {
		if err := h.s.c.quota.Link(h.s.c.links + 1); err != nil {
			h.s.c.failLocked(h.side, amqp.LimitExceeded(err))
			return
		}
	}
	l := &link{s: h.s, name: a.Name, sender: sender}
	l.ends[h.side.at].in = a.Handle
	if !h.handleLocked(l) {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "There are too many links."))
		return
	}
	h.links[a.Handle] = l
	h.s.c.links++
	if h.side.at == client {
		if e := h.s.c.admitLocked(l, a); e != nil {
			l.refuseLocked(h, a, e)
			return
		}
		if h.openLocked(l, a) {
			return
		}
		if h.s.over || h.sentEnd {
			return // while the watcher was asked
		}
	}
	o := h.other()
	if !o.handleLocked(l) {
		l.refuseLocked(h, a, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "There are too many links."))
		return
	}
	o.opening = append(o.opening, l)
	e := entry{link: l, p: a}
	if h.side.at == client && h.s.c.ownSession {
		l.authorizeLocked(h)
	}
	h.passLocked(&e)
}

// answeredLocked passes an attach on that answers ours. It reports whether it was one.
func (h *half) answeredLocked(a *amqp.Attach, sender int) bool {
	i := slices.IndexFunc(h.opening, func(l *link) bool { return l.name == a.Name && l.sender == sender })
	if i < 0 {
		return false
	}
	l := h.opening[i]
	h.opening = slices.Delete(h.opening, i, i+1)
	h.links[a.Handle] = l
	l.ends[h.side.at].in = a.Handle
	if l.watcher != nil && l.sender == client {
		a.MaxMessageSize = l.limit(a.MaxMessageSize)
	}
	h.passLocked(&entry{link: l, p: a})
	return true
}

// openLocked handles a new link of the client. It reports whether the relay answers the link
// itself.
func (h *half) openLocked(l *link, a *amqp.Attach) bool {
	c := h.s.c
	w := Link{Class: l.class, Unlisted: l.unlisted, Receiver: a.Role == amqp.RoleReceiver, Name: a.Name, Conn: c.id}
	if n := c.nodeLocked(l); n != nil {
		c.attachNodeLocked(h, l, a, n)
		return true
	}
	if c.cfg.Refuse != nil {
		c.mu.Unlock()
		e := c.cfg.Refuse(w)
		c.mu.Lock()
		if e != nil {
			if !h.s.over && !h.sentEnd {
				l.refuseLocked(h, a, e)
			}
			return true
		}
		if h.s.over || h.sentEnd {
			return true // while it was asked
		}
	}
	if w.Receiver && l.class.Kind != rights.Responses {
		l.openObservedLocked(w)
		return false
	}
	l.asReplyLinkLocked(a)
	var watcher Watcher
	if c.cfg.Watch != nil {
		c.mu.Unlock()
		watcher = c.cfg.Watch(w)
		c.mu.Lock()
	}
	watcher = c.gated(l, watcher)
	if h.s.over && watcher != nil {
		c.callLocked(watcher.Detached)
		return false
	}
	l.watcher = watcher
	if watcher != nil && l.class.Kind == rights.Requests {
		l.requests = l.class.Address.Key()
	}
	return false
}

// authorizeLocked makes an attach wait for the token that it needs upstream, and with it all
// later frames of the session.
func (l *link) authorizeLocked(h *half) {
	c := l.s.c
	l.awaits = c.authorizeLocked(l, func(e *amqp.Error) {
		c.mu.Lock()
		defer c.unlock()
		l.awaits, l.refusal = false, e
		h.pumpLocked()
		c.doneLocked()
	})
}

// handleLocked assigns l one of our handles.
func (h *half) handleLocked(l *link) bool {
	c := h.s.c
	if c.links > c.cfg.MaxLinks {
		return false
	}
	at := len(h.handles)
	for i, other := range h.handles {
		if other == nil {
			at = i
			break
		}
	}
	if h.begun && uint32(at) > h.handleMax {
		return false
	}
	if at == len(h.handles) {
		h.handles = append(h.handles, nil)
	}
	h.handles[at] = l
	l.ends[h.side.at].out = uint32(at)
	return true
}

// emitAttachLocked attaches the link on the other side.
func (h *half) emitAttachLocked(e *entry, a *amqp.Attach) bool {
	o, l := h.other(), e.link
	end := &l.ends[o.side.at]
	if l.awaits {
		return false
	}
	if l.refusal != nil {
		o.abandonLocked(l)
		l.refuseLocked(h, a, l.refusal)
		return true
	}
	if end.sentDetach {
		return true
	}
	o.beginNowLocked()
	end.sentAttach = true
	if l.reply != nil && h.side.at == upstream && a.Source != nil {
		l.reply.attachedLocked(a)
	}
	b := *a
	b.Handle = end.out
	o.side.putLocked(o.out, &b)
	return true
}

// abandonLocked undoes the preparation of a link that is not attached to the peer.
func (h *half) abandonLocked(l *link) {
	if i := slices.Index(h.opening, l); i >= 0 {
		h.opening = slices.Delete(h.opening, i, i+1)
	}
	h.handles[l.ends[h.side.at].out] = nil
}

// onDetachLocked passes a detach on, after the entries that wait.
func (h *half) onDetachLocked(d *amqp.Detach) {
	l := h.links[d.Handle]
	if l == nil {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondSessionUnattachedHandle, "Detach names handle %d, which is not attached.", d.Handle))
		return
	}
	delete(h.links, d.Handle)
	l.ends[h.side.at].gotDetach = true
	if h.side.at == client {
		l.leaveLocked()
	}
	if l.node != nil {
		l.node.onDetachLocked(h, l, d)
	} else if !l.ends[1-h.side.at].sentDetach {
		h.passLocked(&entry{link: l, p: d})
	}
	l.settleEndsLocked()
}

// leaveLocked notes that the client takes no more deliveries of upstream.
func (l *link) leaveLocked() {
	if !l.left {
		l.s.halves[upstream].releaseUnsentLocked(l)
		l.left = true
	}
}

// emitDetachLocked detaches the link on the other side.
func (h *half) emitDetachLocked(l *link, d *amqp.Detach) {
	l.detachLocked(h.other(), d.Closed, d.Error)
	l.settleEndsLocked()
}

// detachLocked detaches the link towards the peer of h, unless it has done so.
func (l *link) detachLocked(h *half, closed bool, e *amqp.Error) {
	end := &l.ends[h.side.at]
	if end.sentDetach || h.sentEnd {
		return
	}
	end.sentDetach = true
	h.side.putLocked(h.out, &amqp.Detach{Handle: end.out, Closed: closed, Error: e})
}

// breakLocked detaches the link on both sides, because of an error of a peer.
func (l *link) breakLocked(e *amqp.Error) {
	for i := range l.s.halves {
		if l.ends[i].sentAttach || l.ends[1-i].sentAttach {
			l.detachLocked(&l.s.halves[i], true, e)
		}
	}
	l.settleEndsLocked()
}

// refuseLocked answers an attach the way links are refused: attached without a
// terminus, then detached.
func (l *link) refuseLocked(h *half, a *amqp.Attach, e *amqp.Error) {
	l.name, l.class = "", rights.Class{} // only the handle is kept until the client answers, which it may never do
	end, far := &l.ends[h.side.at], &l.ends[1-h.side.at]
	far.gotDetach, far.sentDetach = true, true
	end.sentAttach = true
	h.side.putLocked(h.out, &amqp.Attach{Name: a.Name, Handle: end.out, Role: !a.Role, SndSettleMode: a.SndSettleMode, RcvSettleMode: a.RcvSettleMode})
	l.detachLocked(h, true, e)
}

// settleEndsLocked frees the handles on each side where both have detached.
func (l *link) settleEndsLocked() {
	for i := range l.ends {
		h := &l.s.halves[i]
		if end := &l.ends[i]; end.over() && int(end.out) < len(h.handles) && h.handles[end.out] == l {
			h.handles[end.out] = nil
		}
	}
	if l.ends[client].over() && l.ends[upstream].over() {
		l.goneLocked()
	}
}

// goneLocked drops the link.
func (l *link) goneLocked() {
	if l.gone {
		return
	}
	l.gone = true
	c := l.s.c
	c.links--
	l.releaseClaimsLocked()
	l.watch.dropLocked()
	if l.node != nil {
		l.node.goneLocked(c, l)
	}
	if l.observed != nil {
		l.s.halves[upstream].observed.All(func(o *observed) bool { return o.link == l })
	}
	if l.reply != nil {
		c.forgetReplyLinkLocked(l)
	}
	if l.watcher != nil {
		c.forgetRequestsLocked(l)
		l.s.halves[l.sender].pending.All(func(k **pendingDelivery) bool { return (*k).link == l })
		c.callLocked(l.watcher.Detached)
	}
	c.drainedLocked()
}
