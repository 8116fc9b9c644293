// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	if err := tk.caller.(*result).err; !tk.over() || !errors.Is(err, failure) {
		t.Errorf("done %v with error %v after the second failed, want done with that failure", tk.over(), err)
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

// Otherwise, each event of a sink that is down would end up with a companion of its own.
func TestReferencesThatAreWrittenAgainShareACompanionWhereTheyAreDueTogether(t *testing.T) {
	type written struct {
		Due        time.Time
		Attempt    int
		References int
	}
	again := func(entity string, after time.Duration, attempt int) Companion {
		return Companion{Entity: entity, Due: noon.Add(after), Attempt: attempt, References: refs(0)}
	}
	withoutID := Companion{Entity: "orders", Due: noon, References: []Reference{{Stated: "ttl"}}}
	var many []Companion
	for range groupSize + 1 {
		many = append(many, again("orders", 0, 0))
	}
	for name, c := range map[string]struct {
		asked []Companion
		want  []written
	}{
		"due together":        {[]Companion{again("orders", time.Second-1, 2), again("orders", 0, 2)}, []written{{noon, 2, 2}}},
		"due apart":           {[]Companion{again("orders", 0, 0), again("orders", time.Second, 0)}, []written{{noon, 0, 1}, {noon.Add(time.Second), 0, 1}}},
		"of two entities":     {[]Companion{again("orders", 0, 0), again("bills", 0, 0)}, []written{{noon, 0, 1}, {noon, 0, 1}}},
		"of two attempts":     {[]Companion{again("orders", 0, 1), again("orders", 0, 2)}, []written{{noon, 1, 1}, {noon, 2, 1}}},
		"one without an id":   {[]Companion{again("orders", 0, 0), withoutID}, []written{{noon, 0, 2}}},
		"more than one holds": {many, []written{{noon, 0, groupSize}, {noon, 0, 1}}},
	} {
		var tickets []*ticket
		for _, asked := range c.asked {
			tickets = append(tickets, ticketFor(asked))
		}
		var got []written
		for _, g := range compose(tickets) {
			got = append(got, written{g.c.Due, g.c.Attempt, len(g.c.References)})
			if g.composed {
				t.Errorf("%s: they count as written for the first time", name)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
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
