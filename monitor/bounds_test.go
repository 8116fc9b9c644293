// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"overdue/monitor/scan"
)

// A scan holds live messages under lock, and gives them back at its end. Service Bus has no lock
// that is shorter than five seconds:
// https://learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement.
// With half of that left for giving back, no lock lapses, which would cost an innocent message a
// delivery.
func TestAScanEndsInHalfOfTheShortestLock(t *testing.T) {
	const shortestLock = 5 * time.Second
	if most := shortestLock / 2; scan.Time+scan.Wait > most {
		t.Errorf("a scan takes up to %v, want %v at most", scan.Time+scan.Wait, most)
	}
}
