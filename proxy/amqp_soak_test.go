// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

var soakSeeds = flag.Int("soak.seeds", racetest.Sized(300, 20), "seeds of the soak of the AMQP endpoint")

// Whatever fails: each accepted message is upstream exactly once, or was received,
// and has a companion; and when all works again the apps do, without help. `go test ./proxy -run
// Soak -soak.seeds 1` with OVERDUE_SEED=<number> runs one seed again.
func TestTheAMQPDoorSoaksInFaults(t *testing.T) {
	first, n := testseed.Of(t), *soakSeeds
	if testing.Short() {
		n = min(n, 50)
	}
	for i := range n {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("OVERDUE_SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { soak(t, seed) })
		})
	}
}

// A ledger is what the apps of one soak know.
type ledger struct {
	mu       sync.Mutex
	sent     map[string]*attempt // by body, which is also the message-id
	settling map[string]bool     // bodies that somebody tried to complete: they may be gone
	gone     map[string]bool     // and those of which they heard that they are
}

// An attempt is one message that was sent once, or by an SDK that may repeat it.
type attempt struct {
	acked   bool
	repeats bool // its SDK may have sent it more than once
}

func (l *ledger) send(repeats bool, bodies ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range bodies {
		l.sent[b] = &attempt{repeats: repeats}
	}
}

func (l *ledger) acked(bodies ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range bodies {
		l.sent[b].acked = true
	}
}

func (l *ledger) note(in map[string]bool, body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in[body] = true
}

// A soaking is the world of one seed.
type soaking struct {
	*amqpScene
	ledger
	seed uint64
	over context.Context // ends when the apps are to stop
	calm chan struct{}   // closed when all should work again
	apps sync.WaitGroup
}

func soak(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	keys := rng.IntN(2) == 0
	s := &soaking{seed: seed, calm: make(chan struct{}), amqpScene: setupAMQP(t, func(s *setting) {
		if keys {
			s.broker.Keys = []broker.AuthorizationRule{brokertest.Key()}
		}
		if rng.IntN(2) == 0 {
			s.proxy.AMQP.Tokens = signToken
		}
		if rng.IntN(4) == 0 {
			s.proxy.AMQP.MaxFrameSize, s.proxy.AMQP.IncomingWindow = 512, 2
		}
	})}
	s.sent, s.settling, s.gone = make(map[string]*attempt), make(map[string]bool), make(map[string]bool)
	// A line under delay takes bytes while it is stalled, as a socket does.
	s.front.Delay(pipenet.Both, time.Millisecond)
	s.ns.Net.Delay(pipenet.Both, time.Millisecond)
	var stop context.CancelFunc
	s.over, stop = context.WithCancel(t.Context())
	defer stop()

	kinds := []func(*app){(*app).sdk, (*app).retrier, (*app).pipeline, (*app).transactor, (*app).receiver}
	for i := range 2 + rng.IntN(3) {
		a := &app{soaking: s, name: fmt.Sprintf("%c", 'a'+i), rng: rand.New(rand.NewPCG(seed, uint64(i)+1))}
		kind := kinds[rng.IntN(len(kinds))]
		s.apps.Go(func() { kind(a) })
	}
	s.faults(rng)
	time.Sleep(10 * time.Second)
	stop()
	// Idle time-outs find what is dead. Beyond five minutes the Go SDK renews its tokens with a
	// lock held.
	time.Sleep(2 * time.Minute)
	close(s.calm)
	s.works(s.app, "newcomer")
	s.apps.Wait()
	s.check()
	if t.Failed() {
		t.Logf("run it again with OVERDUE_SEED=%d go test ./proxy -run Soak -soak.seeds 1", seed)
	}
}

// faults hurts the scene for half a minute, or two.
func (s *soaking) faults(rng *rand.Rand) {
	nets := []*pipenet.Network{s.front, s.ns.Net}
	directions := []pipenet.Direction{pipenet.ToListener, pipenet.ToDialer, pipenet.Both}
	long := 0
	for range 3 + rng.IntN(6) {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		net, d := nets[rng.IntN(2)], directions[rng.IntN(3)]
		while := func(on, off func()) {
			on()
			pause := time.Duration(rng.IntN(2000)) * time.Millisecond
			if long == 0 && rng.IntN(8) == 0 {
				long++
				pause = time.Duration(rng.IntN(80)) * time.Second // longer than idle time-outs
			}
			time.Sleep(pause)
			off()
		}
		switch rng.IntN(8) {
		case 0:
			net.Cut()
		case 1:
			net.CutAfter(d, int64(rng.IntN(2000)))
		case 2:
			while(func() { net.Stall(d) }, func() { net.Resume(d) })
		case 3:
			while(func() { net.Refuse(true); net.Cut() }, func() { net.Refuse(false) })
		case 4:
			net.Delay(d, time.Duration(1+rng.IntN(200))*time.Millisecond)
		default:
			remove := s.ns.Broker.Default().Inject(s.fault(rng))
			time.AfterFunc(time.Duration(rng.IntN(10))*time.Second, remove)
		}
	}
	for _, net := range nets {
		net.Resume(pipenet.Both)
		net.Refuse(false)
		net.CutAfter(pipenet.Both, -1)
		net.Delay(pipenet.Both, time.Millisecond)
	}
}

// fault is one of the broker's.
func (s *soaking) fault(rng *rand.Rand) broker.Fault {
	f := broker.Fault{
		Entity:    []string{"orders", monitorQueue, ""}[rng.IntN(3)],
		Operation: []broker.Operation{broker.OnAttach, broker.OnSend, broker.OnSend, broker.OnReceive, broker.OnSettle, broker.OnManagement, broker.OnToken}[rng.IntN(7)],
		After:     rng.IntN(5), Times: 1 + rng.IntN(3),
	}
	kind := rng.IntN(6)
	switch {
	case kind == 0 && f.Operation == broker.OnReceive:
		kind = 1 // the Go SDK spins for ever over a receiver that was detached with server-busy
	case (kind == 0 || kind == 5) && f.Operation == broker.OnSettle:
		kind = 2 // completing again what was refused is a success to go-amqp, which sends nothing then
	}
	switch kind {
	case 0:
		f.Error = broker.ServerBusy()
	case 1:
		f.Detach, f.Error = true, amqp.Errorf(amqp.ErrCondLinkDetachForced, "The link is force detached.")
	case 2:
		f.Cut = true
	case 3:
		f.Silent = true
	case 4:
		f.Delay = time.Duration(rng.IntN(5000)) * time.Millisecond
	case 5:
		f.Error = amqp.Errorf(amqp.ErrCondInternalError, "The service was unable to process the request; please retry the operation.")
	}
	return f
}

// works sends a message when nothing fails any more.
func (s *soaking) works(c *azservicebus.Client, name string) {
	sender, err := c.NewSender("orders", nil)
	if err != nil {
		s.Errorf("NewSender: %v", err)
		return
	}
	s.worksOver(sender, name)
}

func (s *soaking) worksOver(sender *azservicebus.Sender, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	body := name + "-last"
	s.send(true, body)
	if err := sender.SendMessage(ctx, lasting(body), nil); err != nil {
		s.Errorf("%s sends when nothing fails any more = %v", name, err)
		return
	}
	s.acked(body)
}

// check compares the outcomes that the apps got with the messages upstream.
func (s *soaking) check() {
	upstream := make(map[string]int)
	for _, sub := range []azservicebus.SubQueue{0, azservicebus.SubQueueDeadLetter} {
		r, err := s.ns.Client(s.T).NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: sub})
		s.must(err)
		for {
			page, err := r.PeekMessages(s.Context(), 250, nil)
			s.must(err)
			if len(page) == 0 {
				break
			}
			for _, m := range page {
				upstream[string(m.Body)]++
			}
		}
	}
	watched := make(map[string]bool)
	for _, r := range s.references() {
		watched[r.MessageID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for body, a := range s.sent {
		n := upstream[body]
		delete(upstream, body)
		switch {
		case n > 1 && !a.repeats:
			s.Errorf("%s was sent once and is upstream %d times", body, n)
		case a.acked && n == 0 && !s.settling[body]:
			s.Errorf("%s was accepted and is lost", body)
		case n > 0 && s.gone[body] && !a.repeats:
			s.Errorf("%s was completed and is still there", body)
		}
		if a.acked && !watched[body] {
			s.Errorf("%s was accepted and has no companion", body)
		}
	}
	for body := range upstream {
		s.Errorf("%q is upstream and nobody has sent it", body)
	}
}
