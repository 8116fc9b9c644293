// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
)

// A scene is a broker that expires messages by itself, and a canary on the queue canaries.
type scene struct {
	*testing.T
	ns     *brokertest.Namespace
	client *azservicebus.Client
	canary *Canary
	logs   *observer.ObservedLogs
	sendTo atomic.Pointer[string] // where canaries go: the queue, until a test says otherwise; nil: nowhere
}

func setup(t *testing.T) *scene {
	t.Helper()
	ns := brokertest.New(t, func(c *broker.Config) {
		c.AutoCreate, c.Expiry = false, queue.Eager
		c.Queues = []broker.QueueConfig{
			{Name: "canaries", DeadLetteringOnMessageExpiration: true}, {Name: "elsewhere", DeadLetteringOnMessageExpiration: true},
		}
	})
	s := &scene{T: t, ns: ns, client: ns.Client(t)}
	core, logs := observer.New(zap.InfoLevel)
	s.logs = logs
	s.sendTo.Store(to.Ptr("canaries"))
	var err error
	s.canary, err = New(Config{
		Links: ns.Links(t), Queue: "canaries", Interval: time.Minute, Log: zap.New(core), Registerer: prometheus.NewRegistry(),
		Send: func(ctx context.Context, id string, ttl time.Duration) error {
			to := s.sendTo.Load()
			if to == nil {
				return errors.New("no route")
			}
			return s.send(ctx, *to, id, ttl)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) send(ctx context.Context, entity, id string, ttl time.Duration) error {
	sender, err := s.client.NewSender(entity, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // the message is acknowledged
	return sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, TimeToLive: &ttl}, nil)
}

// run runs the canary until the returned function is called.
func (s *scene) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- s.canary.Run(ctx) }()
	return func() {
		s.Helper()
		cancel()
		if err := <-done; err != nil {
			s.Errorf("Run = %v, want nil", err)
		}
	}
}

// checkIs checks that Check returns an error with that text, or nil for "".
func (s *scene) checkIs(want string) {
	s.Helper()
	got := ""
	if err := s.canary.Check(s.Context()); err != nil {
		got = err.Error()
	}
	if got != want && (want == "" || !strings.Contains(got, want)) {
		s.Errorf("Check = %q, want %q", got, want)
	}
}

func (s *scene) count(result string) float64 {
	return testutil.ToFloat64(s.canary.results.WithLabelValues(result))
}

// deadLetters returns the ids in the dead-letter queue.
func (s *scene) deadLetters() []string {
	s.Helper()
	r, err := s.ns.Client(s.T).NewReceiverForQueue("canaries", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		s.Fatal(err)
	}
	ms, err := r.PeekMessages(s.Context(), 250, nil)
	if err != nil {
		s.Fatal(err)
	}
	ids := []string{}
	for _, m := range ms {
		ids = append(ids, m.MessageID)
	}
	return ids
}

func TestADeadLetteredCanaryIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.checkIs("no canary has been noticed yet")
		stop := s.run()
		time.Sleep(ttl + time.Second)
		s.checkIs("")
		if lag := testutil.ToFloat64(s.canary.lag); lag < 0 || lag > 0.2 {
			t.Errorf("lag %v s, want no more than 0.2", lag)
		}
		if last := testutil.ToFloat64(s.canary.last); last < float64(time.Now().Add(-2*time.Second).Unix()) {
			t.Errorf("last noticed at %v, want now", last)
		}
		time.Sleep(2 * time.Minute)
		if n := s.count(resultNoticed); n != 3 {
			t.Errorf("%v canaries were noticed, want 3", n)
		}
		stop()
		if left := s.deadLetters(); len(left) > 0 {
			t.Errorf("dead letters %q are left", left)
		}
		if n := s.logs.Len(); n > 0 {
			t.Errorf("it logged %v, though nothing was wrong", s.logs.All())
		}
	})
}

func TestALostCanaryIsReportedUntilTheNextIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.sendTo.Store(to.Ptr("elsewhere"))
		defer s.run()()
		time.Sleep(5 * time.Minute)
		s.checkIs("the canary missed its deadline 1m0s ago, and is not among the dead letters of canaries")
		if n := s.count(resultLost); n < 3 {
			t.Errorf("%v canaries were lost, want 3 or more", n)
		}
		s.sendTo.Store(to.Ptr("canaries"))
		time.Sleep(3 * time.Minute)
		s.checkIs("")
		var messages []string
		for _, e := range s.logs.All() {
			messages = append(messages, fmt.Sprint(e.Level, " ", e.Message, " ", e.ContextMap()["work_queue"]))
		}
		want := []string{"warn canary lost: missed deadlines may go unnoticed canaries", "info canary noticed again canaries"}
		if diff := cmp.Diff(want, messages); diff != "" {
			t.Errorf("logs (-want +got):\n%s", diff)
		}
	})
}

// An alert rule compares it with ten minutes, whatever the interval is, and whatever time it is.
func TestACanaryIsMissingFromItsSendUntilOneIsNoticed(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, time.Minute, 20 * time.Minute, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := setup(t)
			s.canary.cfg.Interval = interval
			if got := s.canary.missingFor(); got != 0 {
				t.Errorf("interval %v: missing for %v before the first was sent, want 0", interval, got)
			}
			defer s.run()()
			most := time.Duration(0)
			for range 200 {
				time.Sleep(interval / 50)
				most = max(most, s.canary.missingFor())
			}
			if most > ttl+time.Second {
				t.Errorf("interval %v: missing for up to %v although all came back", interval, most)
			}
			s.sendTo.Store(to.Ptr("elsewhere"))
			time.Sleep(interval + 11*time.Minute)
			if got := s.canary.missingFor(); got < 10*time.Minute || got > interval+11*time.Minute {
				t.Errorf("interval %v: missing for %v, %v after the last one came back", interval, got, interval+11*time.Minute)
			}
			s.sendTo.Store(to.Ptr("canaries"))
			time.Sleep(2*interval + 2*timeout)
			if got := s.canary.missingFor(); got > ttl+time.Second {
				t.Errorf("interval %v: missing for %v although they come back", interval, got)
			}
		})
	}
}

func TestACanaryThatCannotBeSentIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.sendTo.Store(nil)
		defer s.run()()
		synctest.Wait()
		s.checkIs("the canary could not be sent: no route")
		if n := s.count(resultNotSent); n != 1 {
			t.Errorf("%v canaries were not sent, want 1", n)
		}
	})
}

// A namespace that stops answering must not leave the last success in force.
func TestAnOldSuccessDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		stop := s.run()
		time.Sleep(ttl + time.Second)
		s.checkIs("")
		stop()
		time.Sleep(3*time.Minute + time.Second)
		s.checkIs("no canary has been noticed for 3m")
	})
}

func TestACanaryIsLostIfTheNamespaceIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.canary.cfg.Send = func(ctx context.Context, id string, ttl time.Duration) error {
			defer s.ns.Net.Stall(pipenet.Both)
			return s.send(ctx, "canaries", id, ttl)
		}
		stop := s.run()
		time.Sleep(10 * time.Minute)
		if err := s.canary.Check(t.Context()); err == nil {
			t.Error("Check = nil though nothing has answered for ten minutes")
		}
		s.ns.Net.Resume(pipenet.Both)
		stop()
	})
}

// Other processes have canaries on the same queue.
func TestOnlyOurOwnCanariesAndStaleOnesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		for i := range maxRemoved + 20 {
			if err := s.send(t.Context(), "canaries", fmt.Sprintf("stale-%d", i), time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(staleAfter)
		if err := s.send(t.Context(), "canaries", "young", time.Second); err != nil {
			t.Fatal(err)
		}
		stop := s.run()
		time.Sleep(ttl + 5*time.Second)
		s.checkIs("")
		time.Sleep(3 * time.Minute)
		stop()
		for _, id := range s.deadLetters() {
			if strings.HasPrefix(id, "stale-") {
				t.Errorf("%s is left", id)
			}
		}
		if n := s.count(resultNoticed); n != 4 {
			t.Errorf("%v canaries were noticed, want 4", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		if err := s.send(t.Context(), "canaries", "young", time.Second); err != nil {
			t.Fatal(err)
		}
		stop := s.run()
		time.Sleep(ttl + 5*time.Second)
		stop()
		if diff := cmp.Diff([]string{"young"}, s.deadLetters()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

func TestNewWantsAllThatACanaryNeeds(t *testing.T) {
	whole := Config{Links: &link.Namespace{}, Queue: "canaries", Interval: time.Minute, Send: func(context.Context, string, time.Duration) error { return nil }}
	if _, err := New(whole); err != nil {
		t.Errorf("New = %v, want nil", err)
	}
	for name, without := range map[string]func(*Config){
		"links": func(c *Config) { c.Links = nil }, "queue": func(c *Config) { c.Queue = "" },
		"interval": func(c *Config) { c.Interval = 0 }, "send": func(c *Config) { c.Send = nil },
	} {
		cfg := whole
		without(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("New without %s = nil, want an error", name)
		}
	}
}
