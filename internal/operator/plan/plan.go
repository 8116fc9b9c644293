// SPDX-License-Identifier: Apache-2.0

// Package plan says beforehand what Overdue costs for a load: operations of Service Bus, the size
// of the monitor queue, processor time and memory. It computes with what `overdue bench` has
// measured, the constants below, and errs on the high side.
package plan

import (
	"errors"
	"fmt"
	"math"
	"time"

	"overdue/internal/monitorqueue"
)

// Tiers of a namespace.
const (
	Basic    = "basic"
	Standard = "standard"
	Premium  = "premium"
)

// Companions, as in the setting.
const (
	Auto = "auto"
	Each = "each"
	Slot = "slot"
)

// A Load is what an app sends.
type Load struct {
	Rate       float64       // messages a second, on all queues together
	Deadline   time.Duration // of each message
	Missed     float64       // the share of messages that miss it, 0 to 1
	Queues     int           // that the messages are spread over evenly
	Senders    int           // proxies that send to each queue, each the same part
	Tier       string
	Companions string

	MonitorQueues int // as in the setting
}

// Bounds of a load.
const (
	maxRate   = 10_000_000
	maxQueues = 10_000 // of a namespace (learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas)
	maxLife   = 100 * 365 * 24 * time.Hour
)

// Check reports everything that is wrong with l.
func (l *Load) Check() error {
	var errs []error
	mistake := func(wrong bool, format string, a ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	mistake(!(l.Rate > 0 && l.Rate <= maxRate), "--rate is %v messages a second; it must be more than 0, and %d at most", l.Rate, maxRate)
	mistake(l.Deadline <= 0 || l.Deadline > maxLife, "--deadline is %v; it must be more than 0, and 100 years at most", l.Deadline)
	mistake(!(l.Missed >= 0 && l.Missed <= 1), "--missed is %v%%; it must be between 0%% and 100%%", l.Missed*100)
	mistake(l.Queues < 1 || l.Queues > maxQueues, "--queues is %d; it must be between 1 and %d", l.Queues, maxQueues)
	mistake(l.Senders < 1 || l.Senders > maxQueues, "--senders is %d; it must be between 1 and %d", l.Senders, maxQueues)
	mistake(l.MonitorQueues < 1 || l.MonitorQueues > monitorqueue.Most, "--monitor-queues is %d; it must be between 1 and %d", l.MonitorQueues, monitorqueue.Most)
	mistake(l.Tier != Basic && l.Tier != Standard && l.Tier != Premium, "--tier is %q; it must be basic, standard or premium", l.Tier)
	mistake(l.Companions != Auto && l.Companions != Each && l.Companions != Slot, "--companions is %q; it must be auto, each or slot", l.Companions)
	return errors.Join(errs...)
}

// A Plan is what a load costs.
type Plan struct {
	Load       Load   `json:"load"`
	Companions string `json:"companions"` // those that are written: each, slot, or both
	// SlotShare is the share of messages for which slots stand, 0 to 1.
	SlotShare float64 `json:"slotShare"`

	// Operations a second.
	App    float64 `json:"appOperations"`    // one to send and one to receive each message, without Overdue too
	Met    float64 `json:"metOperations"`    // for deadlines that are met
	Missed float64 `json:"missedOperations"` // for deadlines that are missed

	Written          float64 `json:"companionsWritten"`     // a second
	Outstanding      float64 `json:"outstandingCompanions"` // on all monitor queues, at most
	MonitorQueueSize float64 `json:"monitorQueueBytes"`     // of the fullest monitor queue

	ProxyCores    float64 `json:"proxyCores"` // of all proxies together
	ProxyMemory   float64 `json:"proxyBytes"` // of one proxy that sends everything
	MonitorCores  float64 `json:"monitorCores"`
	MonitorMemory float64 `json:"monitorBytes"` // of one monitor
	Monitors      int     `json:"monitors"`

	Limits []Limit `json:"limits"`
	// StopsAt is the rate at which the first limit is reached, other things equal; 0: none is
	// documented.
	StopsAt float64 `json:"stopsAtRate"`
}

// A Limit is one of the tier.
type Limit struct {
	Name   string  `json:"name"`
	Most   float64 `json:"most"`
	Used   float64 `json:"used"`
	Source string  `json:"source"`

	fix string // what to do when it is reached
}

// Share is how much of the limit is used; 1: all.
func (l *Limit) Share() float64 { return l.Used / l.Most }

// Err is the error of the exit code: it names the limits of the tier that the load is over.
func (p *Plan) Err() error {
	var errs []error
	for i := range p.Limits {
		if l := &p.Limits[i]; l.Share() >= 1 {
			errs = append(errs, fmt.Errorf("this load is too much for the %s tier: %s of the %s; %s", p.Load.Tier, percent(l.Share()), l.Name, l.fix))
		}
	}
	return errors.Join(errs...)
}

// Overdue is how many operations a second there are beyond those of the app.
func (p *Plan) Overdue() float64 { return p.Met + p.Missed }

// SecondsPerMonth is a month of 365/12 days.
const SecondsPerMonth = 365 * 24 * 3600 / 12

// slotRate is the rate of one proxy and queue from which on slot companions are written.
const slotRate = 100

// slotShare is the share of messages for which slots stand. A proxy takes slots in a second that
// has slotRate messages or more, or that follows one. At rates near it, chance decides in which
// seconds that is so: their number is that of a Poisson process.
func (l *Load) slotShare(perSender float64) float64 {
	switch l.Companions {
	case Each:
		return 0
	case Slot:
		return 1
	}
	return math.Erfc((slotRate-0.5-perSender)/math.Sqrt(2*perSender)) / 2
}

// fullest is the share of the companions on the fullest of n monitor queues, when a hash spreads
// that many queues over them. It is three standard deviations above the mean, and one queue at
// least. With few queues it may well be all of them.
func fullest(queues, n int) float64 {
	mean, one := 1/float64(n), 1/float64(queues)
	return min(1, max(one, mean+3*math.Sqrt(mean*(1-mean)*one)))
}

// Both is what Plan.Companions says where neither kind is rare.
const Both = "each and slot"

// slotsPerSecond is how many slot companions one proxy writes for a queue in a second.
const slotsPerSecond = 10

// creditsPerSecond is what a namespace of the Standard tier grants
// (learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling): a message that is sent,
// received or peeked takes one.
const creditsPerSecond = 1000

// newQueueBytes is the size of a queue that is made without stating one, and queueBytes the largest
// by tier (learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas).
const newQueueBytes = 1 << 30

var queueBytes = map[string]float64{Standard: 5 << 30, Premium: 80 << 30}

// Of computes the plan of a load.
func Of(l Load) (*Plan, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	p := newPlan(l)
	if l.Tier == Standard {
		p.StopsAt = stopsAt(l)
	}
	return p, nil
}

func newPlan(l Load) *Plan {
	perQueue := l.Rate / float64(l.Queues)
	senders := float64(l.Senders)
	perSender := perQueue / senders
	slots := l.slotShare(perSender)
	p := &Plan{Load: l, Companions: Both, SlotShare: slots, App: 2 * l.Rate}
	switch {
	case slots < 0.01:
		p.Companions = Each
	case slots > 0.99:
		p.Companions = Slot
	}
	inFlight := l.Rate * l.Deadline.Seconds()
	slotCompanions := min(l.Rate, slotsPerSecond*float64(l.Queues)*senders) * slots // a second
	named := (1 - slots) * l.Rate
	outstandingSlots := min(slots*inFlight, slotCompanions*(l.Deadline.Seconds()+1))
	p.Written = slotCompanions + named
	p.Met = slots*l.Rate*metSlot.costAt(perSender) + named*(1-l.Missed)*metEach.costAt(perSender)
	p.Outstanding = outstandingSlots + (1-slots)*inFlight
	p.MonitorQueueSize = (outstandingSlots*slotBytes + (1-slots)*inFlight*eachBytes) * fullest(l.Queues, l.MonitorQueues)
	perProcess := l.Rate // of the one that sends everything
	if l.Senders > 1 {
		perProcess = perSender
	}
	p.ProxyCores = l.Rate * (slots*sendSlot.costAt(perProcess) + (1-slots)*sendEach.costAt(perProcess)) / 1e6
	if missed := perQueue * l.Missed; missed > 0 {
		// A slot of each sender stands for the message, and any monitor may have it: each of them
		// nudges.
		times := slots*senders + 1 - slots
		p.Missed = times * l.Rate * l.Missed * missedOperations.costAt(missed)
		p.MonitorCores = times * l.Rate * l.Missed * missedMicros.costAt(missed) / 1e6
	}
	if l.Tier == Basic { // it has no scheduled messages: companions are kept in Redis
		p.Met, p.Written, p.Outstanding, p.MonitorQueueSize = 0, 0, 0, 0
	}
	p.MonitorCores += p.Met * monitorMicros / 1e6
	p.ProxyMemory = idleMemory + inFlight*bytesPerOutstanding
	p.MonitorMemory = idleMemory + l.Rate*l.Missed*bytesPerMissed
	p.Monitors = max(2, int(math.Ceil(p.MonitorCores))+1)
	if l.Tier == Standard {
		p.Limits = append(p.Limits, Limit{
			Name:   "credits a second, of the namespace",
			Most:   creditsPerSecond,
			Used:   p.App + p.Overdue(),
			Source: "service-bus-throttling",
			fix:    "take the Premium tier, or several namespaces",
		})
	}
	if most := queueBytes[l.Tier]; most > 0 {
		p.Limits = append(p.Limits, Limit{
			Name:   p.fullestQueue() + " of " + size(most),
			Most:   most,
			Used:   p.MonitorQueueSize,
			Source: "service-bus-quotas",
			fix:    "spread the companions over more monitor queues",
		})
	}
	return p
}

func (p *Plan) fullestQueue() string {
	if p.Load.MonitorQueues == 1 {
		return "monitor queue"
	}
	return "fullest monitor queue"
}

// stopsAt seeks the rate at which the first limit is reached.
func stopsAt(l Load) float64 {
	low, high := 0.0, float64(maxRate)
	for range 60 {
		l.Rate = (low + high) / 2
		reached := false
		for _, limit := range newPlan(l).Limits {
			reached = reached || limit.Share() >= 1
		}
		if reached {
			high = l.Rate
		} else {
			low = l.Rate
		}
	}
	return high
}

// A curve is what one message costs by rate, as measured. Between two points it is a straight line
// where both axes are logarithmic, and beyond the ends it is what it is at the end.
type curve []point

type point struct{ rate, cost float64 }

// costAt returns the cost of one message at a rate.
func (c curve) costAt(rate float64) float64 {
	if rate <= c[0].rate {
		return c[0].cost
	}
	for i := 1; i < len(c); i++ {
		a, b := c[i-1], c[i]
		if rate <= b.rate {
			share := math.Log(rate/a.rate) / math.Log(b.rate/a.rate)
			return math.Exp(math.Log(a.cost) + share*math.Log(b.cost/a.cost))
		}
	}
	return c[len(c)-1].cost
}

// Rates are those of one queue, but for sends, where they are those of a process. Operations were
// counted by the embedded broker, and processor time measured on two cores of a virtual machine.
var (
	// `overdue bench cost`, consumers receive through the proxy: operations of a message that is
	// met, beyond its own.
	metEach = curve{{10, 5.1}, {100, 3.5}, {1000, 0.36}}
	metSlot = curve{{100, 0.42}, {1000, 0.043}, {10_000, 0.004}}
	// The same runs: processor time of the proxy for a message, in microseconds, its receipt and
	// its settlement included. At low rates most of it is what the proxy needs anyway.
	sendEach = curve{{10, 2000}, {100, 660}, {1000, 104}}
	sendSlot = curve{{100, 425}, {1000, 64}, {10_000, 17}}
	// `overdue bench expire`, deadlines spread over 10 s: operations of a message that is missed,
	// those of its companion included, and the processor time of the process, with its broker.
	missedOperations = curve{{10, 6}, {100, 4.7}, {1000, 0.68}, {10_000, 0.096}}
	missedMicros     = curve{{10, 4000}, {100, 1770}, {1000, 381}, {10_000, 106}}
)

const (
	// eachBytes and slotBytes are how much of the monitor queue a companion takes, with the
	// properties that the broker adds. With a UUID as message-id and a session it is 775.
	eachBytes = 750
	slotBytes = 560

	// bytesPerOutstanding is the memory of a proxy for an outstanding deadline, and bytesPerMissed
	// that of a monitor for each deadline that is missed in a second.
	bytesPerOutstanding = 450
	bytesPerMissed      = 20 << 10
	idleMemory          = 32 << 20

	// monitorMicros is the processor time of a monitor for an operation on companions, in
	// microseconds.
	monitorMicros = 100
)
