// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// Every connection to the broker is cut, stalled or refused, again and again, while deadlines
// are due. Acknowledged sends are the ones that count: each of them is expired and notified, and
// so is every copy.
func TestConnectionsThatFail(t *testing.T) {
	first := testseed.Of(t)
	for _, kind := range []struct {
		name      string
		to        string
		places    []place
		stamp     bool
		configure func(*scene, *broker.Config)
		seeds     uint64
	}{
		{"queue", workQueue, []place{{path: workQueue}}, true, plain, 5},
		{"by hand", workQueue, []place{{path: workQueue}}, false, plain, 1},
		{"sessions", workQueue, []place{{path: workQueue}}, true, withSessions, 1},
		{"sessions, by hand", workQueue, []place{{path: workQueue}}, false, withSessions, 1},
		{"topic", topic, []place{{path: of("a"), subscription: "a"}, {path: of("b"), subscription: "b"}}, true, withTopic(subscription("a"), subscription("b")), 1},
	} {
		if !testseed.Chosen() {
			kind.seeds = min(kind.seeds, 2)
		}
		for i := range kind.seeds {
			seed := first + i
			t.Run(fmt.Sprint(kind.name, ", seed ", seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				play(t, func(s *scene) {
					s.stamp = kind.stamp
					connectionsThatFail(s, rng, kind.to, kind.places)
				}, kind.configure)
			})
		}
	}
}

func connectionsThatFail(s *scene, rng *rand.Rand, to string, places []place) {
	// A line under delay takes bytes while it is stalled, as a socket does. Without, the
	// client would wait for it with a lock held, and fake time could not pass.
	s.Namespace.Net.Delay(pipenet.Both, time.Millisecond)
	s.MeasureClock()
	s.startMonitor()
	var acknowledged []string
	within := map[string]time.Duration{}
	for i := range racetest.Sized(300, 100) {
		id := fmt.Sprint("m-", i)
		within[id] = time.Duration(1000+rng.IntN(4000)) * time.Millisecond
		if code, _ := s.post(to, id, session(fmt.Sprint(i%3)), "Overdue-Within", fmt.Sprintf(`"%dms"`, within[id].Milliseconds())); code == http.StatusCreated {
			acknowledged = append(acknowledged, id)
		}
		time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
		switch rng.IntN(30) {
		case 0:
			s.Namespace.Net.Cut()
		case 1:
			s.Namespace.Net.Stall(pipenet.Both)
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			s.Namespace.Net.Resume(pipenet.Both)
		case 2:
			s.Namespace.Net.Refuse(true)
			s.Namespace.Net.Cut()
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			s.Namespace.Net.Refuse(false)
		}
	}
	time.Sleep(10 * time.Minute)
	notified := map[string]bool{}
	for _, e := range s.Hook.Events() {
		notified[e.Data.Subscription+" "+e.Subject] = true
	}
	for _, p := range places {
		if left := len(s.Waiting(p.path)); left != 0 {
			s.Errorf("%s: %d messages wait, want none", p.path, left)
		}
		for _, m := range s.Dead(p.path) {
			if m.DeadLetteredTime.Before(m.EnqueuedTime.Add(within[m.MessageID])) {
				s.Errorf("%s: %s was dead-lettered early", p.path, m.MessageID)
			}
		}
		for _, id := range acknowledged {
			if !notified[p.subscription+" "+id] {
				s.Errorf("%s: %s was acknowledged and never notified", p.path, id)
			}
		}
	}
	s.Settled(time.Minute)
}
