// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
	"overdue/internal/testing/brokertest"
)

// A past is a scheduler that can write past the SDK, and its broker.
type past struct {
	*testing.T
	*Scheduler
	ns     *brokertest.Namespace
	client *sdk.Client
	sent   int

	mu   sync.Mutex
	told []error // of the way
}

// wantTold looks what was told of the way: that it works, that it does not, and so on in turns.
func (p *past) wantTold(works ...bool) {
	p.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var got []bool
	for _, err := range p.told {
		got = append(got, err == nil)
	}
	if !slices.Equal(got, works) {
		p.Errorf("told %v: works %v, want %v", p.told, got, works)
	}
}

func playPast(t *testing.T, dial func(*brokertest.Namespace) func(context.Context) (net.Conn, error), act func(*past)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "monitor"}} })
		p := &past{T: t, ns: ns, client: ns.Lasting(t)}
		links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: dial(ns), Tokens: link.SAS("RootManageSharedAccessKey", "c2VjcmV0")})
		var err error
		if p.Scheduler, err = New(Config{Client: p.client, MonitorQueue: "monitor", Links: links, Direct: func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.told = append(p.told, err)
		}}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close(context.Background()) }() // a test may have closed it, or its client
		act(p)
	})
}

func dialed(ns *brokertest.Namespace) func(context.Context) (net.Conn, error) { return ns.Dial }

// write asks for one more companion and waits for it.
func (p *past) write() {
	p.Helper()
	p.sent++
	if err := p.Schedule(p.Context(), Companion{Entity: "orders", References: []Reference{sent(fmt.Sprint(p.sent), time.Now().Add(time.Hour))}}); err != nil {
		p.Fatal(err)
	}
}

func (p *past) want(n int) {
	p.Helper()
	q, _ := p.ns.Broker.Queue("monitor")
	if got := q.Counts().Scheduled; got != n {
		p.Errorf("%d companions on the monitor queue, want %d", got, n)
	}
}

func (p *past) open() *link.Writer {
	synctest.Wait()
	p.direct.mu.Lock()
	defer p.direct.mu.Unlock()
	return p.direct.writer
}

func TestCompanionsGoPastTheSDK(t *testing.T) {
	playPast(t, dialed, func(p *past) {
		p.write() // which has the way opened
		if p.open() == nil {
			p.Fatal("the way past the SDK is not open")
		}
		if err := p.client.Close(p.Context()); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			p.write() // the SDK could not
		}
		p.want(11)
		p.wantTold(true)
	})
}

// Whatever becomes of the way past the SDK, companions are written, and when it can be it is opened again.
func TestTheSDKWritesWhatFailsPastIt(t *testing.T) {
	for name, hurt := range map[string]func(*past){
		"cut": func(p *past) {
			ctx, cancel := context.WithCancel(p.Context())
			cancel()
			p.open().Close(ctx)
		},
		"throttled": func(p *past) {
			p.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Error: broker.ServerBusy(), Times: 1})
		},
		"detached": func(p *past) {
			p.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Detach: true, Times: 1})
		},
		"unanswered": func(p *past) {
			p.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Delay: time.Minute, Error: broker.ServerBusy(), Times: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			playPast(t, dialed, func(p *past) {
				p.write()
				was := p.open()
				hurt(p)
				p.write()
				p.want(2)
				p.wantTold(false)
				if p.open() != nil {
					t.Error("the way that failed is still open")
				}
				p.write() // and does not try again at once
				if p.open() != nil {
					t.Error("another way was opened at once")
				}
				time.Sleep(directRest)
				p.write()
				if w := p.open(); w == nil || w == was {
					t.Error("no other way was opened")
				}
				p.write()
				p.want(5)
				p.wantTold(false, true)
			})
		})
	}
}

// However short a transfer's time, the way past the SDK leaves the SDK half of it.
func TestTheWayPastTheSDKLeavesTheSDKTime(t *testing.T) {
	for _, writeTimeout := range []time.Duration{4 * time.Second, 8 * time.Second, 30 * time.Second} {
		t.Run(writeTimeout.String(), func(t *testing.T) {
			playPast(t, dialed, func(p *past) {
				p.cfg.WriteTimeout = writeTimeout
				p.write()
				if p.open() == nil {
					p.Fatal("the way past the SDK is not open")
				}
				p.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Delay: time.Minute, Error: broker.ServerBusy(), Times: 1})
				began := time.Now()
				p.write()
				if took := time.Since(began); took > writeTimeout/2+time.Second {
					p.Errorf("a companion that the way past the SDK did not take took %v, want half of %v and a bit", took, writeTimeout)
				}
				p.want(2)
			})
		})
	}
}

// What keeps the way past the SDK from being opened is told once, however often that is tried.
func TestAWayPastTheSDKThatCannotBeOpenedIsToldOnce(t *testing.T) {
	var up atomic.Bool
	playPast(t, func(ns *brokertest.Namespace) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) {
			if !up.Load() {
				return nil, errors.New("no way there")
			}
			return ns.Dial(ctx)
		}
	}, func(p *past) {
		for range 5 {
			p.write()
			time.Sleep(directRest)
		}
		p.wantTold(false)
		if err := p.told[0]; !strings.Contains(err.Error(), "no way there") {
			p.Errorf("told %v, want the reason", err)
		}
		up.Store(true)
		p.write() // which has it opened
		p.wantTold(false)
		p.write() // over it
		p.wantTold(false, true)
		p.want(7)
	})
}

// The end does not wait for a way that nobody will use.
func TestCloseEndsTheOpeningOfTheWayPastTheSDK(t *testing.T) {
	never := func(*brokertest.Namespace) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	playPast(t, never, func(p *past) {
		p.write()
		began := time.Now()
		if err := p.Close(p.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		p.wantTold() // it was not the way that ended that
	})
}

// A transfer and the opening of another connection may end at once: what is told last is how it is.
func TestTheStatesOfTheWayPastTheSDKAreToldInTurn(t *testing.T) {
	var told []bool // by whoever says it: nothing else keeps them apart
	s := &Scheduler{cfg: Config{Direct: func(err error) { told = append(told, err == nil) }}}
	var all sync.WaitGroup
	for _, err := range []error{nil, errors.New("no way there")} {
		all.Go(func() {
			for range 1000 {
				s.say(err)
			}
		})
	}
	all.Wait()
	for i := range told[1:] {
		if told[i] == told[i+1] {
			t.Fatalf("told %v twice in a row", told[i])
		}
	}
	if last := told[len(told)-1]; last != s.direct.works {
		t.Errorf("told last: works %v, want %v", last, s.direct.works)
	}
}
