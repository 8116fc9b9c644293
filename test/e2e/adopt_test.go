// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
)

// A message that came through an endpoint of the same process is not adopted.
func TestMessagesOfAnEndpointAreNotAdopted(t *testing.T) {
	for _, slots := range []bool{false, true} {
		t.Run(fmt.Sprint("slots ", slots), func(t *testing.T) {
			inModes(t, func(s *scene, c *broker.Config) {
				adopts(workQueue)(s, c)
				early(s, c)
				s.slots = slots
			}, func(s *scene) {
				s.MeasureClock()
				s.startMonitor()
				time.Sleep(5 * time.Second)
				for i := range 20 {
					s.send(workQueue, fmt.Sprint("endpoint-", i), ttl(20*time.Second))
				}
				s.SendDirectly(workQueue, "past", lives(21*time.Second))
				time.Sleep(25 * time.Second)
				if got := s.Adopted(); got != 1 {
					t.Errorf("%v messages were adopted, want the one that bypassed the endpoint", got)
				}
				if got := len(s.Hook.Events()); got != 21 {
					t.Errorf("%d events, want 21", got)
				}
				s.AdoptPassed(time.Second)
			})
		})
	}
}
