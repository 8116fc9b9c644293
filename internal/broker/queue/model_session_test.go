// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
	"time"
)

// modelSessions is the part of a model that knows of sessions. It keeps only the state of a
// session: after every step it computes whether the session is available.
type modelSessions struct {
	locks     []*modelLock // unordered
	states    map[string]modelState
	waiters   []*modelWaiter
	known     []string // in the order in which they came to be
	available []string // in the order in which they became so
}

type modelLock struct {
	id     string
	until  time.Time
	over   bool
	lapsed bool // over by time
}

type modelState struct {
	data string
	at   time.Time
}

type modelWaiter struct{ given *modelLock }

func (m *model) lockOf(id string) *modelLock {
	if i := slices.IndexFunc(m.locks, func(l *modelLock) bool { return l.id == id }); i >= 0 {
		return m.locks[i]
	}
	return nil
}

// note brings the lists up to date after one step.
func (m *model) note() {
	if !m.cfg.RequiresSession {
		return
	}
	exist, available := map[string]bool{}, map[string]bool{}
	for _, x := range m.msgs {
		exist[x.SessionID] = true
		if x.State == Active && !x.Locked && m.lockOf(x.SessionID) == nil {
			available[x.SessionID] = true
		}
	}
	for _, l := range m.locks {
		exist[l.id] = true
	}
	for id := range m.states {
		exist[id] = true
	}
	m.known = follow(m.known, exist)
	m.available = follow(m.available, available)
}

// follow removes from ids what is not in now, and adds what is new; a step adds one at most.
func follow(ids []string, now map[string]bool) []string {
	ids = slices.DeleteFunc(ids, func(id string) bool { return !now[id] })
	before := len(ids)
	for id := range now {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > before+1 {
		panic("a step of the model brought more than one session; their order is anybody's guess")
	}
	return ids
}

func (m *model) accept(id string) *modelLock {
	l := &modelLock{id: id, until: m.now.Add(m.cfg.LockDuration)}
	m.locks = append(m.locks, l)
	m.note()
	return l
}

func (m *model) serveWaiters() {
	for len(m.available) > 0 {
		i := slices.IndexFunc(m.waiters, func(w *modelWaiter) bool { return w.given == nil })
		if i < 0 {
			return
		}
		m.waiters[i].given = m.accept(m.available[0])
	}
}

func (m *model) lapseSessions() {
	due := slices.DeleteFunc(slices.Clone(m.locks), func(l *modelLock) bool { return l.until.Add(sessionGrace).After(m.now) })
	slices.SortFunc(due, func(a, b *modelLock) int {
		return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.id, b.id))
	})
	for _, l := range due {
		m.end(l, true)
	}
}

func (m *model) end(l *modelLock, failed bool) {
	for _, c := range m.consumers {
		if c.under == l {
			c.closed, c.outbox = true, nil
		}
	}
	m.credit = slices.DeleteFunc(m.credit, func(c *modelConsumer) bool { return c.closed })
	for _, x := range m.sorted() {
		if x.Locked && !x.held && x.under == l {
			m.giveBack(x, failed && x.holder == nil)
		}
	}
	l.over, l.lapsed = true, failed
	m.locks = slices.DeleteFunc(m.locks, func(o *modelLock) bool { return o == l })
	m.note()
}
