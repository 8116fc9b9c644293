// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// The whole promise in one test: nobody consumes, and yet each message is in the dead-letter queue
// right after its own deadline and is notified once. The same messages on a queue that is not
// watched stay where they are until somebody receives.
func TestMissedDeadlinesAreDeadLetteredAndNotified(t *testing.T) {
	n := racetest.Sized(1000, 100)
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	inStores(t, func(s *scene) {
		if s.NewStore != nil {
			n = min(n, 300) // which is the same, at the pace of a server
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

// Nobody can receive a message after its time to live, so a deadline that it states for later does
// not delay its expiry. This holds for a message of a queue, and for the copy in a subscription
// whose default is shorter.
func TestTimeToLiveThatEndsBeforeTheStatedDeadline(t *testing.T) {
	const life = 3 * time.Second
	brief := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
		Name: "brief", DefaultMessageTimeToLive: life, DeadLetteringOnMessageExpiration: true,
	}}
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		at := s.Namespace.Broker.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		s.send(workQueue, "m", ttl(life), "overdue-deadline", fmt.Sprintf("%q", at))
		s.send(topic, "at", "", "overdue-deadline", fmt.Sprintf("%q", at))
		s.send(topic, "within", "", "overdue-within", `"1m"`)
		time.Sleep(life + time.Second)
		for name, n := range map[string]int{workQueue: 1, of("brief"): 2} {
			lags := s.Lags(name)
			if len(lags) != n || lags[n-1] > 100*time.Millisecond {
				s.Errorf("%s: the time to live of %d messages has ended, and the lags of the dead letters are %v, want 100ms at most", name, n, lags)
			}
		}
		subjects := slices.Sorted(slices.Values(s.Hook.Subjects()))
		if want := []string{"at", "m", "within"}; !slices.Equal(subjects, want) {
			s.Errorf("notified of %v, want %v", subjects, want)
		}
		s.Settled(5 * time.Second)
	}, withTopic(brief), func(s *scene, _ *broker.Config) { s.subscriptionLife = life })
}

// A consumer that holds the copy in one subscription does not delay the deadline of another copy,
// which the same companion stands for.
func TestHeldCopyDelaysNoOther(t *testing.T) {
	const life, within = 3 * time.Second, 14 * time.Second
	sub := func(name string, life time.Duration) broker.SubscriptionSetup {
		return broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
			Name: name, DefaultMessageTimeToLive: life, LockDuration: time.Minute, DeadLetteringOnMessageExpiration: true,
		}}
	}
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(topic, "m", "", "overdue-within", fmt.Sprintf("%q", within))
		r, err := s.Client.NewReceiverForSubscription(topic, "brief", nil)
		s.Must(err)
		if ms, err := r.ReceiveMessages(s.Context(), 1, nil); err != nil || len(ms) != 1 {
			s.Fatalf("receive = %d messages, %v, want the one", len(ms), err)
		}
		time.Sleep(within + time.Second)
		lags := s.Lags(of("long"))
		if len(lags) != 1 || lags[0] > 100*time.Millisecond {
			s.Errorf("the lags of dead letters are %v, want one of 100ms at most", lags)
		}
		s.Must(r.Close(s.Context()))
	}, withTopic(sub("brief", life), sub("long", 0)), func(s *scene, _ *broker.Config) { s.subscriptionLife = life })
}
