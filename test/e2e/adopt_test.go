// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/monitor"
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
				s.measure()
				s.startMonitor()
				time.Sleep(5 * time.Second)
				for i := range 20 {
					s.send(workQueue, fmt.Sprint("endpoint-", i), ttl(20*time.Second))
				}
				s.sendDirectly(workQueue, "past", lives(21*time.Second))
				time.Sleep(25 * time.Second)
				if got := s.adopted(); got != 1 {
					t.Errorf("%v messages were adopted, want the one that bypassed the endpoint", got)
				}
				if got := len(s.hook.Events()); got != 21 {
					t.Errorf("%d events, want 21", got)
				}
				s.adoptPassed(time.Second)
			})
		})
	}
}

// adopts has these entities checked through every two seconds.
func adopts(names ...string) func(*scene, *broker.Config) {
	return func(s *scene, _ *broker.Config) {
		for _, name := range names {
			s.adopt = append(s.adopt, monitor.Adoption{Entity: name, Every: 2 * time.Second})
		}
	}
}

// past sends a message past all endpoints. An id of "" is left out.
func (s *scene) sendDirectly(to, id string, m azservicebus.Message) {
	s.Helper()
	sender := s.direct[to]
	if sender == nil {
		var err error
		sender, err = s.client.NewSender(to, nil)
		s.must(err)
		if s.direct == nil {
			s.direct = map[string]*azservicebus.Sender{}
		}
		s.direct[to] = sender
	}
	if id != "" {
		m.MessageID = &id
	}
	m.Body = []byte("body of " + id)
	s.must(sender.SendMessage(s.Context(), &m, nil))
}

func lives(d time.Duration) azservicebus.Message { return azservicebus.Message{TimeToLive: &d} }

// adopted is how many messages were given a companion by adopt passes.
func (s *scene) adopted() (n float64) {
	s.Helper()
	for _, registry := range s.metrics {
		families, err := registry.Gather()
		s.must(err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "overdue_adopted_total" {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// adoptPassed waits until the monitor queue holds only the note of the next adopt pass of each
// entity.
func (s *scene) adoptPassed(within time.Duration) {
	s.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		c := s.companionsKept()
		if c.Leased == 0 && int(c.Waiting) == len(s.adopt) && c.Dead == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("there are %+v companions after %v, want %d notes of sweeps", c, within, len(s.adopt))
		}
	}
}
