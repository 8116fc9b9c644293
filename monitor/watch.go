// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"container/heap"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/intake"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// A watch is one message on the work queue, with its deadline. It belongs to the identity of the
// message: every companion that stands for the message is attached to the one watch.
type watch struct {
	timed
	identity   search.Identity
	companions []*intake.Companion  // completed when it ends
	ref        *scheduler.Reference // nil: of a slot, and its message was not seen yet
	hops       int                  // how often it was forwarded, as far as it was followed
	deadline   time.Time            // by the clock of the broker
	due        time.Time            // when to expire it: the deadline, or a moment later, see setDeadline
	state      state

	seen      *link.Message   // as a peek last showed it on the work queue; nil: none has
	seenAt    time.Time       // by our clock: when that peek began
	there     bool            // the last peek showed it
	judgement judge.Judgement // of seen
	attempt   attempt         // the last one to expire it
	expired   *link.Message   // it stood there overdue, and is gone behind our nudge
	missed    *scheduler.Missed
	ended     bool // it is not in hand any more
}

// newWatch makes the watch of a message that rl stands for. The deadline may not be known yet.
func newWatch(rl *rule, identity search.Identity, deadline time.Time) *watch {
	wt := &watch{
		identity: identity,
		hops:     rl.hops,
		deadline: deadline,
		due:      deadline,
	}
	if rl.slot == nil {
		ref := rl.ref
		wt.ref = &ref
	}
	return wt
}

// state is where a watched deadline stands. The picture is in doc.go.
type state int

const (
	stateWaiting     state = iota // its deadline, or a reminder, is still to come
	stateInFlight                 // it is there after its deadline: a consumer probably holds it
	stateGone                     // it is not there any more, and no dead letter shows why
	stateUnexplained              // likewise, and a dead letter that comes late was waited for
	stateMissed                   // it has expired; only the notification is left
	stateMet                      // somebody received it in time
)

// see moves wt on to what was seen of its message. Missed and met are final. Anything else may come
// and go: a peek may show a message late. A message that stays gone is unexplained once its letter
// was waited for.
func (wt *watch) see(seen state) {
	staysGone := wt.state == stateUnexplained && seen == stateGone
	if !wt.isDecided() && !staysGone {
		wt.state = seen
	}
}

// isDecided reports whether wt needs no more checks.
func (wt *watch) isDecided() bool { return wt.state == stateMissed || wt.state == stateMet }

// isOverdue reports whether the message of wt stands on its queue after its deadline.
func (wt *watch) isOverdue() bool {
	return wt.there && wt.state == stateInFlight && wt.judgement.Overdue
}

// setDeadline takes the deadline of wt from its judgement. The proxy stamps the rest of the time to
// an absolute deadline as a time to live, which counts from when the broker enqueues the message.
// So it ends later than the deadline, by the duration of the send. A nudge then disturbs no other
// message, as a scan before would.
func (wt *watch) setDeadline(s Settings) {
	wt.deadline = wt.judgement.Deadline
	wt.due = wt.deadline
	expiry, mortal := judge.NativeExpiry(wt.reference(), wt.seen, s)
	if mortal && expiry.After(wt.deadline) && expiry.Sub(wt.deadline) < checkMin && s.Strategy != strategyScan {
		wt.due = expiry
	}
}

// isNative reports whether the broker expires the message of wt when it is due.
func (wt *watch) isNative(s Settings) bool {
	if wt.seen == nil {
		return true
	}
	expiry, mortal := judge.NativeExpiry(wt.reference(), wt.seen, s)
	return mortal && !expiry.After(wt.due) && wt.seen.State != link.Deferred
}

// expire moves wt on to its notification.
func (wt *watch) expire(m *scheduler.Missed) {
	wt.missed = m
	wt.see(stateMissed)
}

// attach has c completed only when wt has ended.
func (wt *watch) attach(c *intake.Companion) {
	if !slices.Contains(wt.companions, c) {
		c.Add(1)
		wt.companions = append(wt.companions, c)
	}
}

// reference returns the reference of wt. For a message of a slot, it makes one of all that is
// known.
func (wt *watch) reference() *scheduler.Reference {
	if wt.ref == nil {
		enqueued := wt.identity.EnqueuedTime()
		wt.ref = &scheduler.Reference{
			Sent:     enqueued,
			From:     enqueued,
			Until:    enqueued,
			Deadline: wt.deadline,
			Within:   wt.deadline.Sub(enqueued),
			Stated:   "ttl",
		}
	}
	return wt.ref
}

// learn takes from m, the message of wt, what its companion did not say.
func (wt *watch) learn(m *link.Message) {
	r := wt.reference()
	if r.MessageID != "" {
		return
	}
	r.MessageID, r.SessionID = m.MessageID, m.SessionID
	if m.TimeToLive == 0 && r.Stated == "ttl" {
		r.Stated = "default"
	}
}

// again returns a companion that takes over from those of wt. It stands for the one message.
func (wt *watch) again(entity string, due time.Time, attempt int) *scheduler.Companion {
	ref := *wt.reference()
	ref.Missed = wt.missed
	if wt.identity.Number != 0 && wt.missed == nil {
		ref.From = wt.identity.EnqueuedTime()
		ref.Until = ref.From
		ref.SequenceNumber = wt.identity.Number
	}
	return &scheduler.Companion{Entity: entity, Due: due, References: []scheduler.Reference{ref}, Attempt: attempt}
}

// inHand returns the watches that have not ended.
func inHand(watches []*watch) []*watch {
	return filter(watches, func(wt *watch) bool { return !wt.ended })
}

// undecided returns the watches that need more checks.
func undecided(watches []*watch) []*watch {
	return filter(watches, func(wt *watch) bool { return !wt.isDecided() })
}

func filter(watches []*watch, keep func(*watch) bool) []*watch {
	var kept []*watch
	for _, wt := range watches {
		if keep(wt) {
			kept = append(kept, wt)
		}
	}
	return kept
}

// timed is what is to be handled at an instant of our clock.
type timed struct{ next time.Time }

func (t *timed) when() time.Time { return t.next }

// An agendaItem is a rule or a watch.
type agendaItem interface{ when() time.Time }

// An agenda has the rules and watches of an entity in the order of their times: a heap. A watch
// that has ended meanwhile stays in it until its time.
type agenda []agendaItem

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].when().Before(a[j].when()) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements [heap.Interface].
func (a *agenda) Push(x any) { *a = append(*a, x.(agendaItem)) }

// Pop implements [heap.Interface].
func (a *agenda) Pop() any {
	last := len(*a) - 1
	item := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return item
}

// takeDue takes out what is due at an instant of our clock.
func (a *agenda) takeDue(now time.Time) (rules []*rule, watches []*watch) {
	for len(*a) > 0 && !(*a)[0].when().After(now) {
		switch item := heap.Pop(a).(type) {
		case *rule:
			rules = append(rules, item)
		case *watch:
			watches = append(watches, item)
		}
	}
	return rules, watches
}

// putOff returns the latest watches that are due, maxRound at most, and puts the others back. The
// others have probably expired in the nudge of the last round, and come in the next one.
func (a *agenda) putOff(due []*watch) (latest []*watch) {
	rest := max(len(due)-maxRound, 0)
	for _, wt := range due[:rest] {
		heap.Push(a, wt)
	}
	return due[rest:]
}
