// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func refs(deadlines ...time.Duration) []Reference {
	out := make([]Reference, len(deadlines))
	for i, d := range deadlines {
		out[i] = Reference{MessageID: fmt.Sprint(i), Sent: noon, Deadline: noon.Add(d)}
	}
	return out
}

func TestReferencesOfOneSlotShareACompanion(t *testing.T) {
	a := ticketFor(Companion{Entity: "orders", References: refs(10*time.Second+time.Millisecond, 10*time.Second+slot-time.Millisecond)})
	b := ticketFor(Companion{Entity: "orders", References: refs(10*time.Second + slot)})
	other := ticketFor(Companion{Entity: "bills", References: refs(10*time.Second + time.Millisecond)})
	groups := compose([]*ticket{a, b, other})
	if len(groups) != 2 {
		t.Fatalf("compose makes %d companions, want 2: one for each entity", len(groups))
	}
	if got := len(groups[0].c.References); got != 3 {
		t.Errorf("the companion for orders has %d references, want 3", got)
	}
	if want := noon.Add(10*time.Second - slotLead); !groups[0].c.Due.Equal(want) {
		t.Errorf("it is due at %v, want right before the slot, %v", groups[0].c.Due, want)
	}
}

// A companion is due shortly before its deadlines; where these follow the send too closely for that,
// at the deadline or a little later.
func TestACompanionIsDueShortlyBeforeItsDeadlines(t *testing.T) {
	for _, life := range []time.Duration{time.Millisecond, shortSlot, shortLife - 1} {
		r := Reference{Sent: noon, Deadline: noon.Add(life)}
		if late := r.dueAt().Sub(r.Deadline); late < 0 || late >= shortSlot {
			t.Errorf("deadline %v after the send: due %v after it, want 0 to less than %v", life, late, shortSlot)
		}
	}
	for _, life := range []time.Duration{shortLife, shortLife + 1, time.Minute, time.Minute + slot - 1, time.Minute + slot, time.Minute + slot + 1} {
		r := Reference{Sent: noon, Deadline: noon.Add(life)}
		if early := r.Deadline.Sub(r.dueAt()); early <= slotLead || early > slotLead+slot {
			t.Errorf("deadline %v after the send: due %v before it, want more than %v, %v at most", life, early, slotLead, slotLead+slot)
		}
	}
}

func TestSendIsSafeWhenAllItsCompanionsAre(t *testing.T) {
	tk := ticketFor(Companion{Entity: "orders", References: refs(0, time.Second)})
	groups := compose([]*ticket{tk})
	if len(groups) != 2 {
		t.Fatalf("compose makes %d companions, want 2: one for each slot", len(groups))
	}
	groups[0].end(nil)
	if tk.over() {
		t.Error("done after the first of two companions, want both")
	}
	failure := errors.New("full")
	groups[1].end(failure)
	if !tk.over() || !errors.Is(tk.err, failure) {
		t.Errorf("done %v with error %v after the second failed, want done with that failure", tk.over(), tk.err)
	}
}

func TestCompanionsStaySmall(t *testing.T) {
	var tickets []*ticket
	for range 250 {
		tickets = append(tickets, ticketFor(Companion{Entity: "orders", References: refs(0)}))
	}
	groups := compose(tickets)
	if len(groups) != 3 {
		t.Fatalf("250 references make %d companions, want 3 of at most %d", len(groups), groupSize)
	}
	for _, g := range groups {
		g.end(nil)
	}
	for i, tk := range tickets {
		if !tk.over() {
			t.Fatalf("ticket %d is not done although all companions are written", i)
		}
	}
}

func TestCompanionWithItsOwnDueTimeIsNotShared(t *testing.T) {
	due := noon.Add(time.Hour)
	a := ticketFor(Companion{Entity: "orders", Due: due, References: refs(0), Attempt: 3})
	b := ticketFor(Companion{Entity: "orders", Due: due, References: refs(0)})
	groups := compose([]*ticket{a, b})
	if len(groups) != 2 || groups[0].c.Attempt != 3 || !groups[0].c.Due.Equal(due) {
		t.Errorf("compose = %d companions, first %+v; want both as they are", len(groups), groups[0].c)
	}
}

// ticketFor is a ticket for c whose caller waits.
func ticketFor(c Companion) *ticket {
	return &ticket{c: c, caller: &result{done: make(chan struct{})}}
}

// over reports whether a ticket of ticketFor is finished.
func (t *ticket) over() bool {
	select {
	case <-t.caller.(*result).done:
		return true
	default:
		return false
	}
}
