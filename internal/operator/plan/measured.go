// SPDX-License-Identifier: Apache-2.0

package plan

import "math"

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
	metSlot = curve{{100, 0.42}, {1000, 0.042}, {10_000, 0.004}}
	// The same runs: processor time of the proxy for a message, in microseconds, its receipt and
	// its settlement included. At low rates most of it is what the proxy needs anyway.
	sendEach = curve{{10, 2000}, {100, 660}, {1000, 104}}
	sendSlot = curve{{100, 425}, {1000, 64}, {10_000, 17}}
	// `overdue bench expire`, deadlines spread over 10 s: operations of a message that is missed,
	// those of its companion included, and the processor time of the process, with its broker.
	missedOperations = curve{{10, 6}, {100, 4.7}, {1000, 0.68}, {10_000, 0.079}}
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
