// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/quirk"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/testseed"
)

// Whatever happens, on a broker that differs from what is assumed of Service Bus: in one way, or
// in several.
func TestWhateverHappensUnderQuirks(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	each, sets := 1, sized(15, 5)
	if testseed.Chosen() {
		each, sets = 4, 60
	}
	var all, single []quirk.Set
	for _, q := range quirk.All {
		if q.Set != quirk.BatchUnscheduled { // companions would come as fast as the network is, and fake time would stand still
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

// Companions that come at once, and again as soon as they are written again, cost much and lose nothing.
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

// What does not hold where an assumption is wrong, as docs/internals/servicebus.md says.
const (
	// deadlinesFail: a message that the monitor does not see stays after its deadline.
	deadlinesFail = quirk.PeekHidesExpired | quirk.PeekHidesLocked | quirk.StampsSeconds
	// eventsFail: the monitor takes an expired message for one that was received.
	eventsFail = deadlinesFail | quirk.DeadLettersLate
)

// eventsDiffer reports whether a quirk explains why there are n events of an expired message.
func (p *plan) eventsDiffer(n int) bool {
	switch {
	case p.anyOf(quirk.DeadLettersRenumbered | quirk.DeadLettersRestamped): // by what it had before, and by what it has now
		return true
	case p.anyOf(quirk.PeekHidesLocked) && n > 1: // once while a consumer had it, and once when it expired
		return true
	case p.anyOf(quirk.ScheduleLate) && n > 1: // two monitors have its companion at one time
		return len(p.changes) > 0
	}
	return n == 0 && p.anyOf(eventsFail)
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
	if p.anyOf(quirk.ScheduleLate | quirk.ReleaseLast) {
		d += time.Second
	}
	if p.anyOf(quirk.DrainUnanswered) { // each nudge waits for two seconds, and others wait for it
		d += 20 * time.Second
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
