// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"overdue/internal/testing/testseed"
)

// The whole promise in one test: nobody consumes, and yet each message is in the
// dead-letter queue right after its own deadline and is notified once, while the same messages on
// a queue that is not watched stay where they are until somebody receives.
func TestMissedDeadlinesAreDeadLetteredAndNotified(t *testing.T) {
	n := sized(1000, 300)
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	inStores(t, func(s *scene) {
		if s.NewStore != nil {
			n = 300 // which is the same, at the pace of a server
		}
		s.MeasureClock()
		s.startMonitor()
		for i := range n {
			life := 2*time.Second + time.Duration(rng.IntN(6000))*time.Millisecond
			s.send(workQueue, fmt.Sprint("m-", i), ttl(life))
			s.send(otherQueue, fmt.Sprint("u-", i), ttl(life))
		}
		time.Sleep(10 * time.Second)

		lags := s.Lags(workQueue)
		if len(lags) != n {
			s.Fatalf("%d messages were dead-lettered, want %d", len(lags), n)
		}
		s.Logf("lag p50 %v, p99 %v, max %v", lags[n/2], lags[n*99/100], lags[n-1])
		if p99 := lags[n*99/100]; p99 > 250*time.Millisecond {
			s.Errorf("p99 of the lag is %v, want at most 250ms", p99)
		}
		subjects := s.Hook.Subjects()
		if notified := slices.Compact(slices.Clone(subjects)); len(subjects) != n || len(notified) != n {
			s.Errorf("%d events about %d messages, want one for each of %d", len(subjects), len(notified), n)
		}
		s.Settled(time.Second)

		if got := len(s.Waiting(otherQueue)); got != n {
			s.Errorf("%d messages wait on the unwatched queue, want all %d: nobody has received", got, n)
		}
		r, err := s.Client.NewReceiverForQueue(otherQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		defer func() { _ = r.Close(s.Context()) }()
		receiveNothing(s, r)
		if got := len(s.Lags(otherQueue)); got != n {
			s.Errorf("%d of them are dead letters after one receive, want %d", got, n)
		}
	})
}
