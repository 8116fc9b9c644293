// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"time"

	"overdue/alert"
)

// drawReminders adds reminders and completion deadlines to the scenario. It has chances of its own,
// so that it changes nothing else.
func (p *plan) drawReminders(rng *rand.Rand) {
	if rng.IntN(3) == 0 {
		p.warnings = []time.Duration{time.Duration(200+rng.IntN(2000)) * time.Millisecond, time.Duration(3+rng.IntN(60)) * time.Second}
	}
	if rng.IntN(2) == 0 {
		return
	}
	for i := range p.batches {
		for j := range p.batches[i].messages {
			m := &p.batches[i].messages[j]
			if rng.IntN(3) == 0 {
				m.complete = m.within + time.Duration(500+rng.IntN(12_000))*time.Millisecond
			}
		}
	}
}

// remindedInTime checks that nothing is notified before its moment, or twice, and that what
// still stands there was notified of as incomplete when it had to be completed.
func (p *played) remindedInTime() {
	p.Helper()
	times := map[string]int{}
	for _, e := range p.Hook.Events() {
		if e.Type == alert.TypeMissed || e.Data.EnqueuedTime.Before(p.anew) {
			continue
		}
		k := fmt.Sprint(e.Type, " ", e.Data.Subscription, "/", e.Data.SequenceNumber, " ", e.Data.WarnBeforeMs)
		if times[k]++; times[k] > 1 && !p.notifiedOften(e.Subject, times[k]) {
			p.Errorf("notified %d times: %s, %s", times[k], k, e.Subject)
		}
		if e.Data.LagMs < 0 && p.measured && p.step >= 0 { // a stamp of before a step back is ahead
			p.Errorf("%s, %s, was notified %d ms early", k, e.Subject, -e.Data.LagMs)
		}
	}
	accepted := p.accepted()
	for _, at := range p.places {
		for _, v := range p.Waiting(at.path) {
			key := string(keyOf.Find(v.Body))
			m := accepted[key]
			k := fmt.Sprint(alert.TypeIncomplete, " ", at.subscription, "/", v.SequenceNumber, " ", 0)
			if m.complete > 0 && times[k] == 0 && !p.notifiedOften(m.id, 0) {
				p.Errorf("%s: %s %+v had to be completed %v after it was enqueued, stands there and was not notified of", at.path, key, m, m.complete)
			}
		}
	}
}
