// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
)

// The broker refuses messages without a session, after their companions have left. Such a message
// has met no deadline.
func TestARefusedSendIsNoDeadline(t *testing.T) {
	for _, life := range []time.Duration{2 * time.Second, time.Minute} {
		play(t, func(s *scene) {
			s.MeasureClock()
			s.startMonitor()
			sender := s.app(s.endpoint())
			for range 3 {
				if err := sender.SendMessage(s.Context(), &azservicebus.Message{Body: []byte("m"), TimeToLive: &life}, nil); err == nil {
					s.Fatal("a message without a session was accepted")
				}
			}
			if code, _ := s.post(workQueue, "m", ttl(life)); code < http.StatusBadRequest || code >= http.StatusInternalServerError {
				s.Fatalf("a message without a session is answered with %d", code)
			}
			time.Sleep(2 * time.Minute)
			for _, verdict := range []string{"met", "missed", "unknown"} {
				if n := s.Verdicts(workQueue, verdict); n != 0 {
					s.Errorf("%v: %v deadlines of refused messages are %s", life, n, verdict)
				}
			}
			s.WantEvents()
			s.Settled(time.Second)
		}, func(s *scene, c *broker.Config) {
			s.oneProcess = true
			c.Queues[0].RequiresSession = true
		})
	}
}
