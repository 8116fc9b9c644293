// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/testing/testseed"
)

// A client that says anything in any order harms nobody: the relay does not
// fall, nothing stays when it is gone, and another client is served.
func TestAClientThatMakesNoSenseLeavesNothing(t *testing.T) {
	seed := testseed.Of(t)
	for i := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, i))
			s := setup(t, func(c *Config) {
				if c.ErrorLog = nil; random.IntN(2) == 0 {
					c.Watch = func(Link) Watcher { return passThrough{} }
				}
				c.IncomingWindow, c.MaxLinks = 8, 10
			})
			p := s.peer()
			for range 200 {
				frame := amqp.AppendFrame(nil, uint16(random.IntN(3)), nonsense(random), make([]byte, random.IntN(2000)))
				if _, err := p.nc.Write(frame); err != nil {
					break
				}
				if random.IntN(8) == 0 {
					synctest.Wait()
				}
			}
			if random.IntN(2) == 0 {
				p.nc.Close()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := s.ns.Net.Conns(); n != 0 {
				t.Errorf("round %d: %d connections are open upstream, want none", i, n)
			}
			s.must(s.sender(s.raw(nil), nil).Send(t.Context(), text("a"), nil))
		})
		if t.Failed() {
			return
		}
	}
}

// nonsense returns a performative with numbers that are small enough to meet.
func nonsense(r *rand.Rand) amqp.Performative {
	n := func() uint32 { return r.Uint32N(4) }
	yes := func() bool { return r.IntN(2) == 0 }
	names := []string{"a", "b", "c"}
	addresses := []string{"orders", "others", "orders/$management", "$cbs", ""}
	switch r.IntN(20) {
	case 0:
		return &amqp.Begin{IncomingWindow: 10 * n(), OutgoingWindow: n(), HandleMax: n(), NextOutgoingID: n(), HasRemoteChannel: r.IntN(5) == 0}
	case 1, 2, 3, 4, 5:
		a := &amqp.Attach{Name: names[r.IntN(3)], Handle: n(), Role: amqp.Role(yes())}
		if yes() {
			a.Source = &amqp.Source{Address: addresses[r.IntN(5)], HasAddress: true}
		}
		if yes() {
			a.Target = &amqp.Target{Address: addresses[r.IntN(5)], HasAddress: true}
		} else if r.IntN(4) == 0 {
			a.Coordinator = &amqp.Coordinator{}
		}
		return a
	case 6, 7, 8:
		return &amqp.Flow{
			NextIncomingID: n(), HasNextIncomingID: yes(), IncomingWindow: 100 * n(), NextOutgoingID: n(), Handle: n(), HasHandle: yes(),
			DeliveryCount: n(), HasDeliveryCount: yes(), LinkCredit: n(), HasLinkCredit: yes(), Drain: yes(), Echo: yes(),
		}
	case 9, 10, 11, 12, 13, 14:
		return &amqp.Transfer{
			Handle: n(), DeliveryID: n(), HasDeliveryID: r.IntN(8) > 0, DeliveryTag: []byte{byte(n())}, Settled: yes(), HasSettled: yes(),
			More: r.IntN(3) == 0, Aborted: r.IntN(8) == 0, Resume: r.IntN(8) == 0,
		}
	case 15, 16:
		return &amqp.Disposition{Role: amqp.Role(yes()), First: n(), Last: n(), Settled: yes(), State: amqp.Accepted{}}
	case 17:
		return &amqp.Detach{Handle: n(), Closed: yes()}
	case 18:
		if r.IntN(4) > 0 {
			return &amqp.Flow{IncomingWindow: 100}
		}
		return &amqp.End{}
	}
	if r.IntN(10) > 0 {
		return &amqp.Flow{IncomingWindow: 100}
	}
	return &amqp.Close{}
}

// An upstream that says anything in any order cannot bring the relay down; its
// client gets a close.
func TestAnUpstreamThatMakesNoSenseEndsItsClientsAlone(t *testing.T) {
	seed := testseed.Of(t)
	for i := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, i))
			s := setup(t, func(c *Config) {
				c.Dial, c.ErrorLog = func(context.Context) (net.Conn, error) {
					near, far := net.Pipe()
					go talkNonsense(far, random)
					return near, nil
				}, nil
				if random.IntN(2) == 0 {
					c.Watch = func(Link) Watcher { return passThrough{} }
				}
			})
			p := s.peer()
			go func() {
				for id := range uint32(100) {
					if id%10 == 0 {
						_, err := p.nc.Write(amqp.AppendFrame(nil, 0, &amqp.Attach{
							Name: string(rune('a' + id/10%3)), Handle: id / 10, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true},
						}, nil))
						if err != nil {
							return
						}
					}
					if !p.tryTransfer(id/10, id) {
						return
					}
				}
			}()
			time.Sleep(time.Hour)
			p.nc.Close()
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := len(s.relay.conns.Living()); n != 0 {
				t.Errorf("round %d: %d connections are served, want none", i, n)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// talkNonsense shakes hands, answers the first begin and goes on without sense.
func talkNonsense(nc net.Conn, random *rand.Rand) {
	defer nc.Close()
	in := amqp.NewFrameReader(nc, 1<<20)
	say := func(b []byte) { _, _ = nc.Write(b) } // the relay may have ended it
	if _, err := in.ReadProto(); err != nil {
		return
	}
	say(amqp.ProtoSASL[:])
	say(amqp.AppendSASLFrame(nil, &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"ANONYMOUS"}}))
	if _, err := in.Next(); err != nil {
		return
	}
	say(amqp.AppendSASLFrame(nil, &amqp.SASLOutcome{}))
	if _, err := in.ReadProto(); err != nil {
		return
	}
	say(amqp.ProtoAMQP[:])
	// Everything is read, or a pipe would stop the relay.
	ended := make(chan struct{})
	began := make(chan struct{}, 1000)
	go func() {
		defer close(ended)
		for {
			f, err := in.Next()
			if err != nil {
				return
			}
			if p, _, err := amqp.DecodePerformative(f.Body); err == nil {
				if _, ok := p.(*amqp.Begin); ok {
					began <- struct{}{}
				}
			}
		}
	}()
	say(amqp.AppendFrame(nil, 0, &amqp.Open{ContainerID: "nonsense", ChannelMax: 10}, nil))
	select {
	case <-began:
	case <-ended:
		return
	}
	say(amqp.AppendFrame(nil, 0, &amqp.Begin{HasRemoteChannel: true, IncomingWindow: 50, HandleMax: 100}, nil))
	for range 200 {
		say(amqp.AppendFrame(nil, uint16(random.IntN(8)/7), nonsense(random), nil))
	}
	<-ended
}
