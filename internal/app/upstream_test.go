// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/adminport"
	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/freeport"
	"overdue/internal/testing/pipenet"
	"overdue/scheduler"
)

// watchUpstream runs an upstream against addr until the test ends.
func watchUpstream(t *testing.T, addr string) (*upstream, *observer.ObservedLogs, <-chan error) {
	t.Helper()
	ns, err := connect.Parse(config.ConnectionString(addr, config.AnyKeyName, config.AnyKey))
	if err != nil {
		t.Fatal(err)
	}
	links, _, err := ns.Links()
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	u := newUpstream(ns, links, []string{"overdue-monitor"}, zap.New(core))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- u.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		_ = links.Close()
	})
	return u, logs, ended
}

func serveBroker(t *testing.T, ln net.Listener, queues ...broker.QueueConfig) {
	t.Helper()
	b, err := broker.New(broker.Config{Queues: queues})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = b.Serve(ln) }() // it ends with the test
	t.Cleanup(func() { _ = b.Close() })
}

// eventually polls, because what it waits for happens on real sockets.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func TestUpstreamAttachesOnceTheNamespaceIsThere(t *testing.T) {
	addr := freeport.Address(t) // nobody answers for now
	u, logs, ended := watchUpstream(t, addr)
	eventually(t, "the first attempt has failed", func() bool {
		err := u.attached(t.Context())
		return err != nil && !errors.Is(err, errNotTried)
	})
	err := u.attached(t.Context())
	if want := "the namespace " + addr + " cannot be reached: "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("attached = %v, want a sentence that begins with %q", err, want)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("somebody else has taken %s meanwhile: %v", addr, err)
	}
	serveBroker(t, ln, broker.QueueConfig{Name: "overdue-monitor"})
	eventually(t, "attached", func() bool { return u.attached(t.Context()) == nil })
	if n := logs.FilterMessage("namespace unreachable").Len(); n != 1 {
		t.Errorf("%d warnings, want 1 for all attempts", n)
	}
	select {
	case err := <-ended:
		t.Errorf("run ended with %v", err)
	default:
	}
}

func TestRefusalsAreSentences(t *testing.T) {
	tests := map[string]struct {
		err    error
		want   string
		reason adminport.Reason
	}{
		"no right": {
			&amqp.Error{Condition: amqp.ErrCondUnauthorizedAccess, Description: "'Send' claim(s) are required"},
			`the namespace a.b refuses access to the queue "m": 'Send' claim(s) are required (amqp:unauthorized-access); give the key`, adminport.KeyRefused,
		},
		"no good token": {
			&link.StatusError{Code: 401, Description: "InvalidSignature: The token has an invalid signature"},
			`the namespace a.b refuses access to the queue "m": InvalidSignature: The token has an invalid signature; give the key`, adminport.KeyRefused,
		},
		"anything else": {errors.New("reset by peer"), `the queue "m" of a.b cannot be written: attach: reset by peer`, adminport.Other},
		"no queue":      {&amqp.Error{Condition: amqp.ErrCondNotFound}, `the namespace a.b has no queue "m"`, adminport.MonitorQueueMissing},
		"full": {
			&amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "The maximum entity size has been reached or exceeded."},
			`the queue "m" of a.b is full: The maximum entity size has been reached or exceeded (amqp:resource-limit-exceeded); let a monitor receive`, adminport.MonitorQueueFull,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := explain(fmt.Errorf("attach: %w", tt.err), "a.b", "m")
			if !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %q, want it to begin with %q", err, tt.want)
			}
			if got := adminport.ReasonOf(err); got != tt.reason {
				t.Errorf("reason = %s, want %s", got, tt.reason)
			}
		})
	}
}

func TestUpstreamIsCheckedAgainWhenAWriteHasFailed(t *testing.T) {
	addr := freeport.Address(t)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(broker.Config{Queues: []broker.QueueConfig{{Name: "overdue-monitor"}}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = b.Serve(ln) }() // it ends with Close
	u, _, _ := watchUpstream(t, addr)
	eventually(t, "attached", func() bool { return u.attached(t.Context()) == nil })
	<-u.up
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := u.attached(t.Context()); err != nil {
		t.Errorf("attached = %v before anybody doubts, want nil", err)
	}
	for range 3 { // many writes fail at once
		u.doubt.signal()
	}
	eventually(t, "not attached", func() bool { return u.attached(t.Context()) != nil })
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatalf("somebody else has taken %s meanwhile: %v", addr, err)
	}
	serveBroker(t, ln, broker.QueueConfig{Name: "overdue-monitor"})
	eventually(t, "attached again", func() bool { return u.attached(t.Context()) == nil })
	<-u.up // requests another measurement of the clock
}

func TestUpstreamThatWasDoubtedForNothingSaysNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveBroker(t, ln, broker.QueueConfig{Name: "overdue-monitor"})
	u, logs, _ := watchUpstream(t, ln.Addr().String())
	<-u.up
	for range 3 {
		u.doubt.signal()
		<-u.up // it has looked
	}
	if n := logs.FilterMessage("namespace attached").Len(); n != 1 {
		t.Errorf("logged %d times that the namespace is attached, want once", n)
	}
}

// A monitor queue that is not there ends nobody, be it from the start: what needs no companion goes on, and it may be made.
func TestUpstreamWaitsForAQueueThatIsNotThere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = b.Serve(ln) }() // it ends with the test
	t.Cleanup(func() { _ = b.Close() })
	u, logs, ended := watchUpstream(t, ln.Addr().String())
	missing := func() bool {
		err := u.attached(t.Context())
		return err != nil && strings.Contains(err.Error(), `has no queue "overdue-monitor"; create it`)
	}
	for i := range 2 {
		eventually(t, "it says that there is no queue", missing)
		if err := b.AddQueue(broker.QueueConfig{Name: "overdue-monitor"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "attached", func() bool { return u.attached(t.Context()) == nil })
		for event, want := range map[string]int{"monitor queue unavailable": i + 1, "namespace attached": i + 1, "namespace unreachable": 0} {
			if n := logs.FilterMessage(event).Len(); n != want {
				t.Errorf("%q is logged %d times, want %d", event, n, want)
			}
		}
		if err := b.Default().DeleteQueue("overdue-monitor"); err != nil {
			t.Fatal(err)
		}
		u.doubt.signal()
	}
	select {
	case err := <-ended:
		t.Errorf("run ended with %v", err)
	default:
	}
}

// One line at the start of a night is far up in the log by the morning; one for each attempt hides the others.
func TestAnOutageThatLastsIsLoggedOnceAMinute(t *testing.T) {
	addr := freeport.Address(t)
	ns, err := connect.Parse(config.ConnectionString(addr, config.AnyKeyName, config.AnyKey))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+30*time.Second)
		defer cancel()
		newUpstream(ns, nil, []string{"overdue-monitor"}, zap.New(core)).attach(ctx) // nobody listens, so it needs no client
		all := logs.FilterMessage(eventUnreachable).All()
		if len(all) != 4 || logs.Len() != 4 {
			t.Fatalf("%d lines in three and a half minutes, want 4: %v", logs.Len(), logs.All())
		}
		for i := 1; i < len(all); i++ {
			if d := all[i].Time.Sub(all[i-1].Time); d < time.Minute || d > 70*time.Second {
				t.Errorf("line %d came %v after the one before, want about a minute", i, d)
			}
		}
	})
}

// Nothing is sent, so no write fails and nobody doubts. A namespace that is gone refuses
// connections, one that hangs accepts them.
func TestANamespaceThatIsGoneIsNoticedWithoutTraffic(t *testing.T) {
	for name, lose := range map[string]func(*pipenet.Network){
		"it refuses connections": func(n *pipenet.Network) { n.Refuse(true); n.Cut() },
		"it does not answer":     func(n *pipenet.Network) { n.Stall(pipenet.Both) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := brokertest.New(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "overdue-monitor"}} })
				ns, err := connect.Parse(config.ConnectionString("broker.test:5672", config.AnyKeyName, config.AnyKey))
				if err != nil {
					t.Fatal(err)
				}
				u := newUpstream(ns, space.Links(t), []string{"overdue-monitor"}, zap.NewNop())
				u.dial = space.Dial
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- u.run(ctx) }()
				defer func() { cancel(); <-ended }()
				<-u.up
				time.Sleep(time.Hour)
				if err := u.attached(ctx); err != nil {
					t.Fatalf("attached = %v after an idle hour, want nil", err)
				}
				lose(space.Net)
				time.Sleep(30 * time.Second)
				if err := u.attached(ctx); err == nil || u.answers() {
					t.Errorf("attached = %v, answers %v, 30 s after the namespace was lost; want that it cannot be reached", err, u.answers())
				}
				space.Net.Refuse(false)
				space.Net.Resume(pipenet.Both)
				time.Sleep(30 * time.Second)
				if err := u.attached(ctx); err != nil || !u.answers() {
					t.Errorf("attached = %v after it came back, want nil", err)
				}
			})
		})
	}
}

// A link to a queue that is full opens all the same, so only a write tells. Nobody sends, and the
// state ends with its cause.
func TestAFullQueueIsNoticedAndItsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, space := runUpstream(t)
		for _, op := range []broker.Operation{broker.OnSend, broker.OnManagement} {
			space.Broker.Default().Inject(broker.Fault{Entity: "overdue-monitor", Operation: op, Error: broker.EntityFull()})
		}
		full := u.tryWrite(t.Context(), "overdue-monitor")
		if !isFull(full) {
			t.Fatalf("a write to a full queue = %v", full)
		}
		u.doubtAfter(full)
		for range 3 {
			time.Sleep(20 * time.Second)
			if got := adminport.ReasonOf(u.attached(t.Context())); got != adminport.MonitorQueueFull || !u.answers() {
				t.Errorf("reason = %q, answers %v, want monitor_queue_full of a namespace that answers", got, u.answers())
			}
		}
		space.Broker.Default().Heal()
		time.Sleep(fullInterval + 8*time.Second)
		if err := u.attached(t.Context()); err != nil {
			t.Errorf("attached = %v once the queue takes messages, want nil", err)
		}
	})
}

func TestOneWriteThatIsRefusedMakesNoQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, space := runUpstream(t)
		space.Broker.Default().Inject(broker.Fault{Entity: "overdue-monitor", Operation: broker.OnManagement, Error: broker.EntityFull(), Times: 1})
		u.doubtAfter(u.tryWrite(t.Context(), "overdue-monitor"))
		for range 100 {
			if err := u.attached(t.Context()); err != nil {
				t.Fatalf("attached = %v after one refused write, want nil", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if u.isDoubtful() {
			t.Error("the queue is in doubt after a trial write has passed")
		}
	})
}

// runUpstream runs an upstream in a bubble until the test ends.
func runUpstream(t *testing.T) (*upstream, *brokertest.Namespace) {
	t.Helper()
	space := brokertest.New(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "overdue-monitor"}} })
	ns, err := connect.Parse(config.ConnectionString("broker.test:5672", config.AnyKeyName, config.AnyKey))
	if err != nil {
		t.Fatal(err)
	}
	links := space.Links(t)
	s, err := scheduler.New(scheduler.Config{MonitorQueue: "overdue-monitor", Links: links})
	if err != nil {
		t.Fatal(err)
	}
	u := newUpstream(ns, links, []string{"overdue-monitor"}, zap.NewNop())
	u.dial, u.tryWrite = space.Dial, s.TryWrite
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- u.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	<-u.up
	return u, space
}
