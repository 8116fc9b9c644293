// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/testing/pipenet"
)

// When a link goes, the place of its delivery is free for others at once, whatever the delivery
// waits for, and later answers about it have no effect.
func TestALinkThatGoesGivesItsPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MaxInFlight = 3 })
		sc.warm()
		first, second := sc.watch("orders"), sc.watch("orders")
		waitsForItsOutcome := deliver(t, first, sc.within("m1", "30s"))
		synctest.Wait() // until the companion is accepted
		sc.ns.Net.Delay(pipenet.Both, time.Second)
		waitsForItsCompanion := deliver(t, first, sc.within("m2", "30s")).settle(amqp.Accepted{})
		waitsForBoth := deliver(t, first, sc.within("m3", "30s"))
		if x := deliver(t, second, sc.within("", "30s")); !x.waits {
			t.Fatal("a fourth delivery goes on, want it to wait for a place")
		} else {
			first.Detached()
			x.wantReady("")
			x.settle(amqp.Accepted{})
		}
		late := deliver(t, first, sc.within("m4", "30s")) // it was on its way to the watcher
		late.wantRefused("com.microsoft:timeout", "")
		for _, x := range []*driven{waitsForItsOutcome, waitsForBoth} {
			x.settle(amqp.Accepted{}).wantAnswer("-")
		}
		for i := range 2 {
			if x := deliver(t, second, sc.within("", "30s")); x.waits {
				t.Errorf("delivery %d of another link waits, want a place for it", i)
			}
		}
		time.Sleep(5 * time.Second)
		waitsForItsCompanion.wantAnswer("com.microsoft:timeout") // which nobody hears
		sc.ns.Net.Delay(pipenet.Both, 0)
	})
}
