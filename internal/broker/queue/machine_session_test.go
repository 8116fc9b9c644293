// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// machineSession is the lock of a session in the queue and in the model.
type machineSession struct {
	h *Session
	l *modelLock
}

func anySession(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "session")
}

// sessionOperations is what can be done to a session queue only.
func (mc *machine) sessionOperations() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"accept session":      mc.acceptSession,
		"accept next session": mc.acceptNext,
		"cancel accept":       mc.cancelAccept,
		"close session":       mc.onSession(mc.closeSession),
		"renew session":       mc.onSession(mc.renewSession),
		"renew by name":       mc.renewByName,
		"set state":           mc.setState,
		"get state":           mc.getState,
		"send without":        mc.sendWithout,
	}
}

func (mc *machine) onSession(op func(*rapid.T, machineSession)) func(*rapid.T) {
	return func(t *rapid.T) {
		if len(mc.sessions) == 0 {
			t.Skip("no session")
		}
		i := rapid.IntRange(0, len(mc.sessions)-1).Draw(t, "which")
		op(t, mc.sessions[i])
	}
}

func (mc *machine) acceptSession(t *rapid.T) {
	id := anySession(t)
	h, err := mc.q.Sessions().Accept(id)
	if mc.m.lockOf(id) != nil {
		if !errors.Is(err, ErrSessionLocked) {
			t.Fatalf("Accept(%q) = %v, want ErrSessionLocked", id, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Accept(%q): %v", id, err)
	}
	mc.sessions = append(mc.sessions, machineSession{h, mc.m.accept(id)})
}

func (mc *machine) acceptNext(t *rapid.T) {
	if len(mc.waiters) >= 3 {
		t.Skip("enough")
	}
	w, err := mc.q.sessions.await()
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	mc.waiters = append(mc.waiters, w)
	mc.m.waiters = append(mc.m.waiters, &modelWaiter{})
	mc.m.assign()
}

func (mc *machine) cancelAccept(t *rapid.T) {
	if len(mc.waiters) == 0 {
		t.Skip("nobody waits")
	}
	i := rapid.IntRange(0, len(mc.waiters)-1).Draw(t, "which")
	mc.q.sessions.forgo(mc.waiters[i])
	mc.waiters = slices.Delete(mc.waiters, i, i+1)
	mc.m.waiters = slices.Delete(mc.m.waiters, i, i+1)
}

func (mc *machine) closeSession(_ *rapid.T, s machineSession) {
	s.h.Close()
	s.h.Close() // does nothing
	mc.m.end(s.l, false)
	mc.m.assign()
	mc.m.settleDead()
}

func (mc *machine) renewSession(t *rapid.T, s machineSession) {
	mc.m.renew(s.l)
	if until, err := s.h.Renew(); err != nil || !until.Equal(s.l.until) {
		t.Fatalf("Renew = %v, %v, want %v", until, err, s.l.until)
	}
}

func (m *model) renew(l *modelLock) {
	l.until = m.now.Add(m.cfg.LockDuration)
	for _, x := range m.msgs {
		if x.Locked && x.under == l {
			x.LockedUntil = l.until
		}
	}
}

func (mc *machine) renewByName(t *rapid.T) {
	id := anySession(t)
	var want time.Time
	wantErr := ErrSessionLockLost
	if l := mc.m.lockOf(id); l != nil {
		mc.m.renew(l)
		want, wantErr = l.until, nil
	}
	if until, err := mc.q.Sessions().RenewLock(id); !errors.Is(err, wantErr) || !until.Equal(want) {
		t.Fatalf("Sessions.RenewLock(%q) = %v, %v, want %v, %v", id, until, err, want, wantErr)
	}
}

func (mc *machine) setState(t *rapid.T) {
	id, data := anySession(t), rapid.SampledFrom([]string{"", "s", "state"}).Draw(t, "state")
	var want error
	if mc.m.lockOf(id) == nil {
		want = ErrSessionLockLost
	}
	if err := mc.q.Sessions().SetState(id, []byte(data)); !errors.Is(err, want) {
		t.Fatalf("SetState(%q) = %v, want %v", id, err, want)
	}
	switch {
	case want != nil:
	case data == "":
		delete(mc.m.states, id)
	default:
		if mc.m.states == nil {
			mc.m.states = make(map[string]modelState)
		}
		mc.m.states[id] = modelState{data, mc.m.now}
	}
}

func (mc *machine) getState(t *rapid.T) {
	id := anySession(t)
	want, wantErr := "", error(nil)
	if mc.m.lockOf(id) == nil {
		wantErr = ErrSessionLockLost
	} else {
		want = mc.m.states[id].data
	}
	if got, err := mc.q.Sessions().State(id); string(got) != want || !errors.Is(err, wantErr) {
		t.Fatalf("SessionState(%q) = %q, %v, want %q, %v", id, got, err, want, wantErr)
	}
}

func (mc *machine) sendWithout(t *rapid.T) {
	first := Message{SessionID: anySession(t), HasSession: true}
	if _, err := mc.q.Send(first, Message{}); !errors.Is(err, ErrSessionRequired) {
		t.Fatalf("Send without a session = %v, want ErrSessionRequired", err)
	}
}

// prune takes out the consumers and locks of sessions that have ended, and puts in what those who
// waited were given.
func (mc *machine) prune(t *rapid.T) {
	t.Helper()
	mc.q.Wake() // time has passed for the model
	for i := len(mc.consumers) - 1; i >= 0; i-- {
		if !mc.m.consumers[i].closed {
			continue
		}
		select {
		case <-mc.consumers[i].Ready(): // closed, or signalled before
		default:
			t.Fatalf("a consumer is open though its session was lost")
		}
		if got := mc.consumers[i].Credit(); got != 0 {
			t.Fatalf("Credit in a lost session = %d, want 0", got)
		}
		mc.consumers = slices.Delete(mc.consumers, i, i+1)
		mc.m.consumers = slices.Delete(mc.m.consumers, i, i+1)
	}
	mc.collect(t)
	mc.sessions = slices.DeleteFunc(mc.sessions, func(s machineSession) bool {
		if lost := s.h.isLost(); lost != s.l.over {
			t.Fatalf("session %q is lost: %v, want %v", s.l.id, lost, s.l.over)
		}
		return s.l.over
	})
}

// collect takes the sessions that were given to those who waited.
func (mc *machine) collect(t *rapid.T) {
	t.Helper()
	for i := len(mc.waiters) - 1; i >= 0; i-- {
		want := mc.m.waiters[i].given
		select {
		case h := <-mc.waiters[i].ch:
			if want == nil || h.ID() != want.id {
				t.Fatalf("waiter %d was given session %q, want %+v", i, h.ID(), want)
			}
			mc.waiters = slices.Delete(mc.waiters, i, i+1)
			mc.m.waiters = slices.Delete(mc.m.waiters, i, i+1)
			mc.sessions = append(mc.sessions, machineSession{h, want})
		default:
			if want != nil {
				t.Fatalf("waiter %d was given nothing, want session %q", i, want.id)
			}
		}
	}
}

func (mc *machine) compareSessions(t *rapid.T) {
	t.Helper()
	if !mc.m.cfg.RequiresSession {
		return
	}
	for _, s := range mc.sessions {
		if got, want := s.h.LockedUntil(), s.l.until; s.h.ID() != s.l.id || !got.Equal(want) {
			t.Fatalf("session %q locked until %v, want %q until %v", s.h.ID(), got, s.l.id, want)
		}
	}
	var listed, stated []string
	after := mc.m.now.Add(-7 * time.Second)
	for _, id := range mc.m.known {
		s, has := mc.m.states[id]
		if has || slices.ContainsFunc(mc.m.msgs, func(x *modelMsg) bool { return x.SessionID == id && x.State == Active }) {
			listed = append(listed, id)
		}
		if has && s.at.After(after) {
			stated = append(stated, id)
		}
	}
	if diff := gocmp.Diff(listed, mc.q.Sessions().List(time.Time{}, 0, 10), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Sessions: -want +got:\n%s", diff)
	}
	skip := min(1, len(listed))
	if diff := gocmp.Diff(listed[skip:min(skip+2, len(listed))], mc.q.Sessions().List(time.Time{}, 1, 2), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Sessions, two after the first: -want +got:\n%s", diff)
	}
	if diff := gocmp.Diff(stated, mc.q.Sessions().List(after, 0, 10), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Sessions with a state set lately: -want +got:\n%s", diff)
	}
	id := anySession(t)
	var want []View
	for _, x := range mc.m.sorted() {
		if x.SessionID == id {
			want = append(want, x.View)
		}
	}
	if diff := gocmp.Diff(want, seen(mc.q.Sessions().Peek(nil, id, -1, 1000)), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Sessions.Peek(%q): -want +got:\n%s", id, diff)
	}
}
