// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// Whatever happens, on a broker that differs from what is assumed of Service Bus: in one way, or
// in several.
func TestWhateverHappensUnderQuirks(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	each, sets := 1, racetest.Sized(15, 5)
	if testseed.Chosen() {
		each, sets = 4, 60
	}
	var all, single []quirk.Set
	for _, q := range quirk.All {
		switch q.Set {
		case quirk.BatchUnscheduled: // companions would come as fast as the network is, and fake time would stand still
		// Then what a consumer holds counts as received, and what expired before a monitor saw it is
		// unknown: see the table of overdue doctor verify.
		case quirk.PeekHidesLocked, quirk.DeadLettersRenumbered, quirk.DeadLettersRestamped:
		default:
			single = append(single, q.Set)
		}
	}
	for range each {
		all = append(all, single...)
	}
	for range sets {
		var set quirk.Set
		for range 2 + rng.IntN(4) {
			set |= single[rng.IntN(len(single))]
		}
		all = append(all, set)
	}
	for i, set := range all {
		t.Run(fmt.Sprint(i, " ", set), func(t *testing.T) {
			t.Parallel()
			playScenario(t, seed, uint64(i), set)
		})
	}
}

// Companions that come at once, and again as soon as they are written again, cost much and lose
// nothing.
func TestCompanionsThatAreNeverScheduledKeepTheirDeadlines(t *testing.T) {
	play(t, func(s *scene) {
		s.Namespace.Net.Delay(pipenet.Both, 5*time.Millisecond) // or time would stand still
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "m-1", ttl(8*time.Second)) // beyond what a monitor keeps in hand
		time.Sleep(10 * time.Second)
		if lags := s.Lags(workQueue); len(lags) != 1 || lags[0] > 250*time.Millisecond {
			s.Errorf("lags %v, want one of at most 250ms", lags)
		}
		if n := s.written.Load(); n < 20 {
			s.Errorf("%d companions were written, want one after the other for three seconds", n)
		}
		s.WantEvents("missed m-1")
		s.Settled(time.Second)
	}, func(_ *scene, c *broker.Config) { c.Quirks = quirk.BatchUnscheduled })
}

// eventsNeedOne are the quirks of which each event stands one: together with any other one, events
// may be missing, or come twice.
const eventsNeedOne = quirk.DeadLettersRenumbered | quirk.DeadLettersRestamped | quirk.DeadLettersLate | quirk.PeekHidesExpired |
	quirk.StampsSeconds

// several reports whether the broker differs in more than one way.
func (p *plan) several() bool { return bits.OnesCount32(uint32(p.quirks)) > 1 }

// unreachable reports whether an expired message may be neither seen nor expired. A peek hides it,
// and a nudge does not reach behind the first live message, takes seconds, or cannot be made as
// long as a consumer holds the session.
func (p *plan) unreachable() bool {
	if p.several() && p.anyOf(quirk.PeekHidesExpired|quirk.StampsSeconds) {
		return true
	}
	return p.anyOf(quirk.PeekHidesExpired) && (p.anyOf(quirk.FlushHead|quirk.DrainUnanswered) || p.expiry == queue.LazyHead || p.consumers > 0 && p.withSessions())
}

// eventsDiffer reports whether a quirk explains why there are n events of an expired message with
// that id.
func (p *plan) eventsDiffer(id string, n int) bool {
	switch {
	case p.ambiguous(id), p.several() && p.anyOf(eventsNeedOne):
		return true
	case p.anyOf(quirk.ScheduleLate) && n > 1: // two monitors have its companion at one time
		return len(p.changes) > 0
	}
	// A message that a nudge leaves, for a while or for good, seems to be held. Where letters are
	// taken away, its verdict is unknown then.
	return n == 0 && (p.unreachable() || p.drained && p.anyOf(quirk.StampsSeconds|quirk.CleanupLate))
}

// ambiguous reports whether nothing tells the messages with that message-id apart: it repeats
// within seconds, and numbers, stamps or peeks do not help.
func (p *plan) ambiguous(id string) bool { return p.quirks != 0 && strings.HasPrefix(id, often) }

func (p *plan) withSessions() bool {
	return slices.ContainsFunc(p.places, func(at place) bool { return at.sessions })
}

// sharesStamp reports whether the event of v, which has a new number, may have the id of another
// one: a message with the same stamp had that number.
func (p *played) sharesStamp(at place, v queue.View) bool {
	return p.anyOf(quirk.DeadLettersRenumbered) && slices.ContainsFunc(p.everDead(at.path), func(o queue.View) bool {
		return o.EnqueuedTime.Equal(v.EnqueuedTime) && o.SequenceNumber != v.SequenceNumber
	})
}

// earlier is how much before its deadline a message may expire.
func (p *plan) earlier() time.Duration {
	if p.anyOf(quirk.StampsSeconds) {
		return time.Second
	}
	return 0
}

// anyOf reports whether the broker has one of these quirks.
func (p *plan) anyOf(quirks quirk.Set) bool { return p.quirks&quirks != 0 }

// slower is how much later than otherwise a message may expire.
func (p *plan) slower() (d time.Duration) {
	if p.anyOf(quirk.ScheduleLate) {
		d += time.Second
	}
	if p.anyOf(quirk.CleanupLate) {
		d += 2 * time.Second
	}
	if p.anyOf(quirk.ReleaseLast) { // a scan may have to come around
		d += 10 * time.Second
	}
	if p.anyOf(quirk.DrainUnanswered) { // each nudge waits for two seconds, and others wait for it
		d += 70 * time.Second
	}
	return d
}

// eventKey names the message of an event. A dead letter with a new number has its message-id.
func (p *plan) eventKey(subscription string, number int64, id string) string {
	if p.anyOf(quirk.DeadLettersRenumbered) {
		return subscription + "/" + id
	}
	return fmt.Sprint(subscription, "/", number)
}
