// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
)

// An upstreamConn is the least that a pair needs to live on: one connection,
// opened, with nothing but the channel of the pair on it.
type upstreamConn struct {
	sync.Mutex
	nc    net.Conn
	peer  amqp.Open
	pair  *pair
	trace []string // of the pair's frames, both ways
}

func dialUpstream(t *testing.T, dial func(context.Context) (net.Conn, error)) *upstreamConn {
	t.Helper()
	nc, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := &upstreamConn{nc: nc}
	in := amqp.NewFrameReader(nc, 4096)
	if _, err := nc.Write(amqp.AppendFrame(amqp.ProtoAMQP[:], 0, &amqp.Open{
		ContainerID: "test", Hostname: "overdue.test", MaxFrameSize: 4096, ChannelMax: 7,
	}, nil)); err != nil {
		t.Fatal(err)
	}
	if proto, err := in.ReadProto(); err != nil || proto != amqp.ProtoAMQP {
		t.Fatalf("protocol header = % x, %v, want AMQP 1.0.0", proto, err)
	}
	f, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := amqp.DecodePerformative(f.Body)
	if err != nil {
		t.Fatal(err)
	}
	open, ok := p.(*amqp.Open)
	if !ok {
		t.Fatalf("first frame = %T, want open", p)
	}
	u.peer = *open
	u.pair = newPair(u, u.send, func() uint32 { return u.peer.MaxFrameSize })
	done := make(chan struct{})
	go u.read(t, in, done)
	stop := make(chan struct{})
	go u.keepAlive(stop)
	t.Cleanup(func() {
		close(stop)
		nc.Close()
		<-done
	})
	return u
}

func (u *upstreamConn) send(p amqp.Performative, payload []byte) {
	u.trace = append(u.trace, "out "+amqp.Trace(p, len(payload)))
	_, _ = u.nc.Write(amqp.AppendFrame(nil, 3, p, payload)) // the reader tells
}

func (u *upstreamConn) keepAlive(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Minute):
			u.Lock()
			_, _ = u.nc.Write(amqp.AppendFrame(nil, 0, nil, nil)) // the reader tells
			u.Unlock()
		}
	}
}

func (u *upstreamConn) read(t *testing.T, in *amqp.FrameReader, done chan struct{}) {
	defer close(done)
	for {
		f, err := in.Next()
		if err != nil {
			return // the end of the test, or puts time out
		}
		if len(f.Body) == 0 {
			continue
		}
		p, payload, err := amqp.DecodePerformative(f.Body)
		if err != nil {
			t.Errorf("frame from the upstream: %v", err)
			return
		}
		u.Lock()
		u.trace = append(u.trace, "in "+amqp.Trace(p, len(payload)))
		if err := u.pair.frameLocked(p, payload); err != nil {
			t.Errorf("the pair on %T = %v, want no complaint", p, err)
		}
		u.Unlock()
	}
}

func (u *upstreamConn) log() string {
	u.Lock()
	defer u.Unlock()
	return strings.Join(u.trace, "\n")
}

func secured(queues ...string) func(*broker.Config) {
	return func(cfg *broker.Config) {
		cfg.AutoCreate = false
		cfg.Keys = []broker.AuthorizationRule{brokertest.Key()}
		for _, name := range queues {
			cfg.Queues = append(cfg.Queues, broker.QueueConfig{Name: name})
		}
	}
}

func ownKey() func(context.Context, string) (Token, error) {
	k := brokertest.Key()
	return SAS(k.KeyName, k.PrimaryKey)
}

func TestATokenIsPutOnThePairOfTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		wrong := SAS("RootManageSharedAccessKey", "d3Jvbmc=")
		for _, c := range []struct {
			name      string
			tokens    func(context.Context, string) (Token, error)
			audience  string
			status    int32
			condition amqp.Symbol // of the refusal of a link
		}{
			{"a good token", ownKey(), "sb://overdue.test/orders", 202, ""},
			{"a node below", ownKey(), "sb://overdue.test/orders/$management", 202, ""},
			{"another key", wrong, "sb://overdue.test/orders", 401, amqp.ErrCondUnauthorizedAccess},
			{"no such entity", ownKey(), "sb://overdue.test/nothing", 404, amqp.ErrCondNotFound},
		} {
			token, err := c.tokens(t.Context(), c.audience)
			if err != nil {
				t.Fatal(err)
			}
			res, err := u.pair.put(t.Context(), c.audience, token)
			if err != nil || res.status != c.status {
				t.Errorf("%s: put = %d %q, %v, want %d", c.name, res.status, res.description, err, c.status)
			}
			if !res.succeeded() && res.refusal().Condition != c.condition {
				t.Errorf("%s: refusal = %v, want the condition %s", c.name, res.refusal(), c.condition)
			}
		}
		if n := strings.Count(u.log(), "out begin"); n != 1 {
			t.Errorf("%d sessions for four tokens, want 1:\n%s", n, u.log())
		}
	})
}

func TestALongTokenIsCutToTheFramesOfTheUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(cfg *broker.Config) {
			secured("orders")(cfg)
			cfg.AcceptJWT = true
		})
		u := dialUpstream(t, ns.Dial)
		token := Token{Text: strings.Repeat("x", 20_000), Type: TokenJWT}
		res, err := u.pair.put(t.Context(), "sb://overdue.test/orders", token)
		if err != nil || res.status != 202 {
			t.Errorf("put of %d bytes = %d %q, %v, want 202", len(token.Text), res.status, res.description, err)
		}
		if n := strings.Count(u.log(), "out transfer"); n < 5 {
			t.Errorf("%d transfers for %d bytes in frames of 4096, want 5 or more", n, len(token.Text))
		}
	})
}

func TestThePairComesBackAfterTheUpstreamHasDetachedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		token, _ := ownKey()(t.Context(), "sb://overdue.test/orders")
		put := func() error {
			res, err := u.pair.put(t.Context(), "sb://overdue.test/orders", token)
			if err == nil && res.status != 202 {
				err = fmt.Errorf("status %d", res.status)
			}
			return err
		}
		if err := put(); err != nil {
			t.Fatalf("put = %v", err)
		}
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Detach: true, Times: 1,
			Error: amqp.Errorf(amqp.ErrCondLinkDetachForced, "idle")})
		if err := put(); !errors.Is(err, errPairLost) {
			t.Errorf("put whose link is detached = %v, want errPairLost", err)
		}
		if err := put(); err != nil {
			t.Errorf("put after that = %v, want a new pair:\n%s", err, u.log())
		}
	})
}

func TestAPutEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		token, _ := ownKey()(t.Context(), "sb://overdue.test/orders")
		if _, err := u.pair.put(t.Context(), "sb://overdue.test/orders", token); err != nil {
			t.Fatal(err) // without any token the broker would close the connection
		}
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Delay: time.Minute, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := u.pair.put(ctx, "sb://overdue.test/orders", token); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("put = %v, want the deadline", err)
		}
		time.Sleep(2 * time.Minute) // the answer that nobody waits for comes
		if res, err := u.pair.put(t.Context(), "sb://overdue.test/orders", token); err != nil || res.status != 202 {
			t.Errorf("put after that = %d, %v, want 202", res.status, err)
		}
		u.Lock()
		defer u.Unlock()
		if len(u.pair.puts) != 0 || len(u.pair.queue) != 0 {
			t.Errorf("%d puts and %d in the queue are left, want none", len(u.pair.puts), len(u.pair.queue))
		}
	})
}

// Ten times the credit of the upstream, and as many as its session window.
func TestAThousandEntitiesGetTheirTokensOnOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entities = 1000
		names := make([]string, entities)
		for i := range names {
			names[i] = fmt.Sprintf("q%d", i)
		}
		ns := brokertest.New(t, secured(names...))
		u := dialUpstream(t, ns.Dial)
		var made atomic.Int64
		asked := make(chan struct{}) // closed once all have been: a token that is there meanwhile would meet the later ones at once
		k := newKeeper(t.Context(), "overdue.test", func(ctx context.Context, audience string) (Token, error) {
			<-asked
			made.Add(1)
			return ownKey()(ctx, audience)
		}, u.pair.put, func(err error) { t.Error(err) })
		defer k.close()
		var wg sync.WaitGroup
		for _, name := range names {
			for range 3 {
				wg.Add(1)
				if _, inEffect := k.need(name, func(err *amqp.Error) {
					if err != nil {
						t.Errorf("need(%s) = %v", name, err)
					}
					wg.Done()
				}); inEffect {
					t.Fatalf("need(%s) is met before a token was put", name)
				}
			}
		}
		close(asked)
		wg.Wait()
		if n := made.Load(); n != entities {
			t.Errorf("%d tokens for three links to each of %d entities, want one each", n, entities)
		}
		time.Sleep(75 * time.Minute) // an hour is what a token holds
		synctest.Wait()
		if n := made.Load(); n != 2*entities {
			t.Errorf("%d tokens after 75 minutes, want each of %d renewed once", n, entities)
		}
		for _, name := range names {
			if _, inEffect := k.need(name, func(*amqp.Error) {}); !inEffect {
				t.Fatalf("need(%s) after 75 minutes has to wait, want a token that was renewed", name)
			}
		}
	})
}

func TestNothingOfATokenIsTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		k := brokertest.Key()
		token, _ := ownKey()(t.Context(), "sb://overdue.test/orders")
		if _, err := u.pair.put(t.Context(), "sb://overdue.test/orders", token); err != nil {
			t.Fatal(err)
		}
		signature, _, _ := strings.Cut(token.Text[strings.Index(token.Text, "sig=")+4:], "&")
		said := u.log() + fmt.Sprintf("%v %+v %#v %s", token, token, token, token) + fmt.Sprintf("%v %+v %#v", sas.Key{Name: k.KeyName, Value: k.PrimaryKey},
			Credentials{Password: k.PrimaryKey, Token: token.Text}, &Credentials{Password: k.PrimaryKey, Token: token.Text})
		for _, secret := range []string{signature, k.PrimaryKey} {
			if strings.Contains(said, secret) {
				t.Errorf("what is said of a token shows %q", secret)
			}
		}
	})
}

func FuzzPairFrames(f *testing.F) {
	f.Add(amqp.AppendFrame(nil, 0, &amqp.Begin{IncomingWindow: 10}, nil)[8:], amqp.AppendFrame(nil, 0, &amqp.Attach{Name: "x", Role: amqp.RoleSender}, nil)[8:])
	f.Add(amqp.AppendFrame(nil, 0, &amqp.Transfer{Handle: 0, More: true}, []byte("abc"))[8:], amqp.AppendFrame(nil, 0, &amqp.End{}, nil)[8:])
	f.Add(amqp.AppendFrame(nil, 0, &amqp.Flow{HasHandle: true, HasLinkCredit: true, LinkCredit: 1 << 31, IncomingWindow: 1 << 31}, nil)[8:],
		amqp.AppendFrame(nil, 0, &amqp.Disposition{Role: amqp.RoleReceiver, Last: 1 << 31, State: &amqp.Rejected{}}, nil)[8:])
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var mu sync.Mutex
		sent := 0
		p := newPair(&mu, func(amqp.Performative, []byte) { sent++ }, func() uint32 { return 512 })
		p.puts[0] = &put{payload: bytes.Repeat([]byte("x"), 2000), done: make(chan putAnswer, 1)}
		p.queue = append(p.queue, p.puts[0])
		p.openLocked()
		for range 8 {
			for _, body := range [][]byte{first, second} {
				if perf, payload, err := amqp.DecodePerformative(body); err == nil {
					_ = p.frameLocked(perf, payload)
				}
			}
		}
		if sent > 200 {
			t.Errorf("16 frames caused %d, want a bounded number", sent)
		}
		if len(p.partial) > maxTokenMessage {
			t.Errorf("%d bytes of a response are kept, want at most %d", len(p.partial), maxTokenMessage)
		}
	})
}
