// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"testing"
	"time"

	"overdue/internal/operator/plan"
	"overdue/internal/testing/testseed"
)

// loads are how proxies use slots: all of them, where one proxy sends to each entity or each sends
// much; some, at the rate from which slots pay; none below.
func loads() map[string]fleet {
	full := fleet{
		proxies: 1000, monitors: 50, entities: 200, rate: 100_000, deadline: 5 * time.Second, missed: 0.01,
		lasts: 5 * time.Second, monitorQueues: 4,
	}
	few, fast, slow := full, full, full
	few.proxies = 200
	fast.proxies, fast.entities = 500, 100
	slow.rate = 10_000
	return map[string]fleet{"five proxies for an entity": full, "one proxy for an entity": few, "proxies that send more": fast, "proxies that send little": slow}
}

// part is a part of everything, for a shorter time.
func (f fleet) part(of int) fleet {
	f.proxies, f.monitors, f.entities, f.rate, f.lasts = f.proxies/of, max(f.monitors/of, 5), f.entities/of, f.rate/float64(of), 3*time.Second
	return f
}

// A plan names hardly fewer operations than the proxies and monitors of a fleet need, and twice as
// many at most. Where seeds are chosen, as with make soak, one fleet has its full size.
func TestPlansAreRightForFleets(t *testing.T) {
	seed := testseed.Of(t)
	for name, f := range loads() {
		switch {
		case !testseed.Chosen():
			f = f.part(20)
		case name != "five proxies for an entity":
			f = f.part(5)
		}
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			got := f.play(t, seed)
			l := plan.Load{
				Rate: f.rate, Deadline: f.deadline, Missed: f.missed, Queues: f.entities, Senders: f.senders(), MonitorQueues: f.monitorQueues,
				Tier: plan.Premium, Companions: plan.Auto,
			}
			p, err := plan.Of(l)
			if err != nil {
				t.Fatal(err)
			}
			l.MonitorQueues = 1
			single, err := plan.Of(l)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d proxies, %d monitors, %d entities, %.0f messages a second: %.0f companions a second, planned %.0f; %.0f operations, planned %.0f; %.0f transfers",
				f.proxies, f.monitors, f.entities, got.messages, got.companions(), p.Written, got.total(), p.Overdue(), got.transfers)
			t.Logf("the busiest monitor has %.3f of the work, the fullest monitor queue %.3f of the companions, planned %.3f; played in %v",
				got.busiestMonitor, got.fullestQueue, p.MonitorQueueSize/single.MonitorQueueSize, time.Since(began).Round(time.Second))
			between := func(what string, got, least, most float64) {
				t.Helper()
				if !(got >= least && got <= most) {
					t.Errorf("%s: %v, want %v to %v", what, got, least, most)
				}
			}
			between("messages", got.messages, 0.9*f.rate, 1.1*f.rate)
			between("companions, planned of those written", p.Written/got.companions(), 0.95, 1.4)
			between("operations, planned of those counted", p.Overdue()/got.total(), 0.9, 2)
			between("companions on the fullest monitor queue", got.fullestQueue, 1/float64(f.monitorQueues), p.MonitorQueueSize/single.MonitorQueueSize)
			between("work of the busiest monitor, of its share", got.busiestMonitor*float64(f.monitors), 1, 1.3)
			between("bytes of a companion, without those that the broker adds", got.bodyBytes, 50, 600)
		})
	}
}
