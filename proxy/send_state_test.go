// SPDX-License-Identifier: Apache-2.0

package proxy

import "testing"

var stateNames = []string{"waiting", "scheduling", "together", "sending", "unscheduled", "proving", "sent", "widening", "done"}

// happening is an input, and whether it is an error.
type happening struct {
	in     input
	failed bool
}

var happenings = map[string]happening{
	"alone": {beginAlone, false}, "companion first": {beginCompanionFirst, false},
	"both": {beginTogether, false}, "companion last": {beginCompanionLast, false},
	"refused": {refused, true}, "timeout": {timeout, false}, "connection ended": {connectionEnded, false},
	"accepted": {brokerSettled, false}, "rejected": {brokerSettled, true},
	"scheduled": {companionScheduled, false}, "not scheduled": {companionScheduled, true},
}

// steps is the table of a send: what is not in it has no effect.
var steps = map[state]map[string]struct {
	to  state
	due action
}{
	waiting: {
		"alone": {sending, transmit}, "companion first": {scheduling, schedule},
		"both": {together, scheduleAndTransmit}, "companion last": {proving, transmit},
		"refused": {done, finish}, "timeout": {done, finish}, "connection ended": {done, finish},
	},
	scheduling: {
		"scheduled": {sending, transmit}, "not scheduled": {done, finish},
		"timeout": {done, finish}, "connection ended": {done, finish},
	},
	together: {
		"accepted": {sent, nothing}, "rejected": {done, finish},
		"scheduled": {sending, nothing}, "not scheduled": {unscheduled, nothing},
		"timeout": {done, finish}, "connection ended": {done, finish},
	},
	sending: {
		"accepted": {widening, scheduleAgain}, "rejected": {done, finish},
		"timeout": {done, finish}, "connection ended": {done, finish},
	},
	unscheduled: {
		"accepted": {done, finish}, "rejected": {done, finish},
		"timeout": {done, finish}, "connection ended": {done, finish},
	},
	proving: {
		"accepted": {sent, schedule}, "rejected": {done, finish},
		"timeout": {done, finish}, "connection ended": {done, finish},
	},
	sent: {
		"scheduled": {widening, scheduleAgain}, "not scheduled": {done, finish},
		"timeout": {done, finish}, "connection ended": {done, finish},
	},
	widening: {
		"scheduled": {done, finish}, "not scheduled": {done, finish},
		"timeout": {done, finish}, "connection ended": {done, finish},
	},
	done: {},
}

func TestASendStepsByItsTable(t *testing.T) {
	for from := waiting; from <= done; from++ {
		for name, h := range happenings {
			to, due := next(from, h.in, h.failed)
			want, ok := steps[from][name]
			if !ok {
				want.to, want.due = from, ignore
			}
			if to != want.to || due != want.due {
				t.Errorf("%s, %s: goes to %s with action %d, want %s with %d",
					stateNames[from], name, stateNames[to], due, stateNames[want.to], want.due)
			}
		}
	}
}

// Principle 2: whatever happens in whatever order, no message goes before its companions are on
// their way, and no send succeeds without both. Only who has yet to prove himself sends first.
func TestNoMessageGoesBeforeItsCompanions(t *testing.T) {
	type way struct {
		at                              state
		scheduled, transmitted, proving bool
		companions, accepted            bool // the last outcome of the monitor queue; of the broker
	}
	seen := map[way]bool{}
	var walk func(w way)
	walk = func(w way) {
		if seen[w] {
			return
		}
		seen[w] = true
		for name, h := range happenings {
			if name == "alone" {
				continue // it has no companions
			}
			x := w
			var due action
			x.at, due = next(w.at, h.in, h.failed)
			if due == ignore {
				continue
			}
			switch h.in {
			case companionScheduled:
				x.companions = !h.failed
			case brokerSettled:
				x.accepted = !h.failed
			case beginCompanionLast:
				x.proving = true
			}
			switch due {
			case schedule, scheduleAgain:
				x.scheduled = true
			case scheduleAndTransmit:
				x.scheduled, x.transmitted = true, true
			case transmit:
				if !x.scheduled && !x.proving {
					t.Errorf("%s, %s: transmits without companions", stateNames[w.at], name)
				}
				x.transmitted = true
			case finish:
				succeeds := !h.failed && (h.in == companionScheduled || h.in == brokerSettled && x.companions)
				if succeeds && (!x.companions || !x.accepted || !x.transmitted) {
					t.Errorf("%s, %s: the send succeeds with companions %v, messages %v", stateNames[w.at], name, x.companions, x.accepted)
				}
			}
			walk(x)
		}
	}
	walk(way{at: waiting})
	for st := waiting; st <= done; st++ {
		reached := false
		for w := range seen {
			reached = reached || w.at == st
		}
		if !reached {
			t.Errorf("no send comes to the state %s", stateNames[st])
		}
	}
}
