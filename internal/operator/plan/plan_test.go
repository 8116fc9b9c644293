// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

var load = Load{Rate: 2000, Deadline: 30 * time.Second, Missed: 0.01, Queues: 12, Senders: 1, MonitorQueues: 1, Tier: Standard, Companions: Auto}

func mustPlan(t *testing.T, change func(*Load)) *Plan {
	t.Helper()
	l := load
	change(&l)
	p, err := Of(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestACurveIsStraightBetweenItsPoints(t *testing.T) {
	c := curve{{10, 4}, {1000, 1}}
	for rate, want := range map[float64]float64{1: 4, 10: 4, 100: 2, 1000: 1, 1e6: 1} {
		if got := c.costAt(rate); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %v it is %v, want %v", rate, got, want)
		}
	}
}

// Pages quote the last run of all measurements, and the plan. So a figure that both have is one.
func TestThePlanHasTheFiguresOfTheMeasurements(t *testing.T) {
	met, missed := measured(t)
	agree := func(what string, got float64, m point) {
		t.Helper()
		if math.Abs(got-m.cost) > 1e-9 {
			t.Errorf("%s at %v a second costs %v operations a message, and %v in results.json; state that in plan.go", what, m.rate, got, m.cost)
		}
	}
	for _, m := range met {
		p := mustPlan(t, func(l *Load) { l.Rate, l.Queues, l.Missed, l.Companions = m.rate, 1, 0, Slot })
		agree("a met message", p.Met/m.rate, m)
	}
	for _, m := range missed {
		p := mustPlan(t, func(l *Load) { l.Rate, l.Queues, l.Missed = m.rate, 1, 1 })
		agree("a missed message", p.Missed/m.rate, m)
	}
	if len(met) < 2 || len(missed) < 1 {
		t.Errorf("%d and %d measurements were compared, want two and one at least", len(met), len(missed))
	}
}

func TestCompanionsFollowTheRateOfAQueue(t *testing.T) {
	if p := mustPlan(t, func(*Load) {}); p.Companions != Slot {
		t.Errorf("companions are %s at 167 messages a second on a queue, want %s", p.Companions, Slot)
	}
	p := mustPlan(t, func(l *Load) { l.Queues = 100 })
	if p.Companions != Each || p.Outstanding != 60_000 {
		t.Errorf("companions are %s, %v outstanding; at 20 messages a second on a queue want %s, 60000", p.Companions, p.Outstanding, Each)
	}
}

// Slots are counted by proxy and queue, so many proxies may each be too slow for them. Near the
// rate from which slots pay, some seconds have them and others have not.
func TestSlotsAreThoseOfAProxyAndAQueue(t *testing.T) {
	with := func(senders int) *Plan {
		return mustPlan(t, func(l *Load) { l.Rate, l.Queues, l.Senders = 12_000, 12, senders })
	}
	for senders, want := range map[int]string{1: Slot, 5: Slot, 10: Both, 20: Each} {
		if p := with(senders); p.Companions != want {
			t.Errorf("with %d proxies for a queue of 1,000 messages a second, companions are %s (%.2f), want %s", senders, p.Companions, p.SlotShare, want)
		}
	}
	if one, five := with(1), with(5); five.Written < 4*one.Written || five.Missed <= one.Missed {
		t.Errorf("five proxies for a queue write %v companions, one %v, and cost %v and %v for what is missed", five.Written, one.Written, five.Missed, one.Missed)
	}
}

func TestMonitorQueuesShareTheCompanions(t *testing.T) {
	with := func(n int) float64 {
		return mustPlan(t, func(l *Load) { l.Companions, l.MonitorQueues, l.Queues = Each, n, 200 }).MonitorQueueSize
	}
	if one, four := with(1), with(4); four < one/4 || four > one/2 {
		t.Errorf("the fullest of four monitor queues has %v bytes, a single one %v", four, one)
	}
	if got := mustPlan(t, func(l *Load) { l.Queues, l.MonitorQueues = 1, 16 }).MonitorQueueSize; got != mustPlan(t, func(l *Load) { l.Queues = 1 }).MonitorQueueSize {
		t.Errorf("one queue has companions of %v bytes with 16 monitor queues, want all on one", got)
	}
}

func TestMoreCostsMore(t *testing.T) {
	base := mustPlan(t, func(l *Load) { l.Companions = Each })
	for what, p := range map[string]*Plan{
		"rate":   mustPlan(t, func(l *Load) { l.Companions, l.Rate = Each, 4000 }),
		"missed": mustPlan(t, func(l *Load) { l.Companions, l.Missed = Each, 0.5 }),
	} {
		if p.Overdue() <= base.Overdue() || p.MonitorCores <= base.MonitorCores {
			t.Errorf("a higher %s costs %v operations a second, and %v cores; before %v, %v", what, p.Overdue(), p.MonitorCores, base.Overdue(), base.MonitorCores)
		}
	}
	if slot := mustPlan(t, func(*Load) {}); slot.Overdue() >= base.Overdue() {
		t.Errorf("slots cost %v operations a second, a companion for each message %v", slot.Overdue(), base.Overdue())
	}
}

// Where a plan says that a tier stops, it does, and not much before.
func TestTheTierStopsWhereItIsSaidTo(t *testing.T) {
	p := mustPlan(t, func(*Load) {})
	full := func(rate float64) bool {
		for _, limit := range mustPlan(t, func(l *Load) { l.Rate = rate }).Limits {
			if limit.Share() >= 1 {
				return true
			}
		}
		return false
	}
	if at := p.StopsAt; at <= 0 || !full(at*1.001) || full(at*0.999) {
		t.Errorf("the tier is said to stop at %v messages a second", at)
	}
	if p := mustPlan(t, func(l *Load) { l.Tier = Premium }); p.StopsAt != 0 {
		t.Errorf("the Premium tier is said to stop at %v", p.StopsAt)
	}
	if p := mustPlan(t, func(l *Load) { l.Tier = Basic }); p.Met != 0 || p.Outstanding != 0 || len(p.Limits) != 0 {
		t.Errorf("the Basic tier has %v operations, %v companions, %v", p.Met, p.Outstanding, p.Limits)
	}
}

func TestALoadOverALimitOfTheTierFails(t *testing.T) {
	for _, c := range []struct {
		change func(*Load)
		want   string
	}{
		{func(*Load) {}, "too much for the standard tier: 463% of the credits a second"},
		{func(l *Load) { l.Rate = 100 }, ""},
		{func(l *Load) { l.Tier = Premium }, ""},
		{func(l *Load) { l.Tier, l.Deadline, l.Companions = Premium, 24*time.Hour, Each }, "too much for the premium tier: 151% of the monitor queue of 80 GiB"},
		{func(l *Load) { l.Tier = Basic }, ""},
	} {
		p := mustPlan(t, c.change)
		if err := p.Err(); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v messages a second, %s tier: error %v, want %q in it", p.Load.Rate, p.Load.Tier, err, c.want)
		}
	}
}

func TestLoadsThatCannotBe(t *testing.T) {
	for want, change := range map[string]func(*Load){
		"--rate is 0 messages":     func(l *Load) { l.Rate = 0 },
		"--rate is NaN":            func(l *Load) { l.Rate = math.NaN() },
		"--deadline is 0s":         func(l *Load) { l.Deadline = 0 },
		"--missed is 200%":         func(l *Load) { l.Missed = 2 },
		"--queues is 0":            func(l *Load) { l.Queues = 0 },
		"--senders is -1":          func(l *Load) { l.Senders = -1 },
		"--monitor-queues is 17":   func(l *Load) { l.MonitorQueues = 17 },
		`--tier is "gold"`:         func(l *Load) { l.Tier = "gold" },
		`--companions is "some"`:   func(l *Load) { l.Companions = "some" },
		"must be between 0% and 1": func(l *Load) { l.Missed = math.Inf(1) },
	} {
		l := load
		change(&l)
		if _, err := Of(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func TestTheTextSaysWhatIsUsed(t *testing.T) {
	for _, c := range []struct {
		change func(*Load)
		want   string
	}{
		{func(*Load) {}, "the tier carries up to 144 messages a second"},
		{func(l *Load) { l.Tier, l.Deadline, l.Companions = Premium, time.Hour, Each }, "give more to the monitor queue"},
		{func(l *Load) { l.Rate = 100 }, "the tier carries up to"},
		{func(l *Load) { l.Tier = Basic }, "companions are kept in Redis"},
		{func(l *Load) { l.Tier = Premium }, "no documented limit of operations"},
		{func(l *Load) { l.MonitorQueues = 4 }, "monitor queues 4 with"},
	} {
		var out bytes.Buffer
		if err := mustPlan(t, c.change).WriteText(&out, 100, 0.8); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		if !strings.Contains(text, c.want) || !strings.Contains(text, "price of a month") {
			t.Errorf("%q is not in\n%s", c.want, out.String())
		}
	}
}
