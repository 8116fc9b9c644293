// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

const sessionFilter = amqp.Symbol("com.microsoft:session-filter")

// sessions runs f on fake time with a session queue q.
func sessions(t *testing.T, f func(*testing.T, *brokertest.Namespace)) {
	t.Helper()
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		if err := ns.Broker.AddQueue(broker.QueueConfig{Name: "q", RequiresSession: true}); err != nil {
			t.Fatal(err)
		}
		f(t, ns)
	})
}

// encoded is a value as bytes.
func encoded(t *testing.T, v any) amqp.Raw {
	t.Helper()
	raw, err := amqp.AppendValue(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// acceptOver asks for a session by the value of its filter.
func acceptOver(t *testing.T, ns *brokertest.Namespace, filter any, properties amqp.Raw) *wire {
	t.Helper()
	return attachOver(t, ns, &amqp.Source{
		Address: "q", HasAddress: true, Filter: encoded(t, amqp.Map{{Key: sessionFilter, Value: filter}}),
	}, properties)
}

func sendToSession(t *testing.T, ns *brokertest.Namespace, id string) {
	t.Helper()
	if err := send(t, ns.Client(t), "q", &azservicebus.Message{SessionID: &id}); err != nil {
		t.Fatal(err)
	}
}

// wantRefusal reads how an attach was refused.
func (w *wire) wantRefusal(want amqp.Symbol) {
	w.t.Helper()
	if a := next[*amqp.Attach](w); a.Source != nil {
		w.t.Errorf("attach has source %+v, want null", a.Source)
	}
	d := next[*amqp.Detach](w)
	if !d.Closed || d.Error == nil || d.Error.Condition != want {
		w.t.Errorf("detach = closed %v, %v, want closed with %s", d.Closed, d.Error, want)
	}
}

// The filter comes back in the encoding of the client: Go reads nothing but a
// described value, JavaScript compares it with a string.
func TestASessionFilterIsAnsweredAsItWasAsked(t *testing.T) {
	described := func(v any) amqp.Described { return amqp.Described{Descriptor: uint64(0x137000000C), Value: v} }
	symbolic := func(v any) amqp.Described { return amqp.Described{Descriptor: sessionFilter, Value: v} }
	for name, c := range map[string]struct{ ask, answer any }{
		"next, plain":               {nil, "a"},
		"next, described":           {described(nil), described("a")},
		"next, described by symbol": {symbolic(nil), symbolic("a")},
		"named, plain":              {"a", "a"},
		"named, described":          {described("a"), described("a")},
		"named and empty":           {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sessions(t, func(t *testing.T, ns *brokertest.Namespace) {
				sendToSession(t, ns, "a")
				filter := func(v any) amqp.Raw { return encoded(t, amqp.Map{{Key: sessionFilter, Value: v}}) }
				w := attachOver(t, ns, &amqp.Source{Address: "q", HasAddress: true, Filter: filter(c.ask)}, nil)
				a := next[*amqp.Attach](w)
				if a.Source == nil || !bytes.Equal(a.Source.Filter, filter(c.answer)) || a.Source.Address != "q" {
					t.Fatalf("source = %+v, want q with the filter %x", a.Source, filter(c.answer))
				}
				r, ok := amqp.MapLookup(a.Properties, "com.microsoft:locked-until-utc")
				ticks := r.Long()
				until := time.Now().Add(time.Minute)
				if want := (until.UnixMicro()*10 + 621355968000000000); !ok || r.Err() != nil || ticks > want || ticks < want-1e7 {
					t.Errorf("locked until %d ticks, %v, want about %d", ticks, r.Err(), want)
				}
			})
		})
	}
}

func TestASessionFilterThatMakesNoSenseIsRefused(t *testing.T) {
	sessions(t, func(t *testing.T, ns *brokertest.Namespace) {
		for _, c := range []struct {
			filter any
			want   amqp.Symbol
		}{
			{int32(1), amqp.ErrCondInvalidField},
			{amqp.List{"a"}, amqp.ErrCondInvalidField},
			{amqp.Described{Descriptor: uint64(1), Value: true}, amqp.ErrCondInvalidField},
			{strings.Repeat("ä", 129), amqp.ErrCondNotAllowed},
		} {
			acceptOver(t, ns, c.filter, nil).wantRefusal(c.want)
		}
		acceptOver(t, ns, strings.Repeat("ä", 128), nil)
	})
}

func TestWhoDoesNotSayHowLongWaitsAMinuteForASession(t *testing.T) {
	const timeout = amqp.Symbol("com.microsoft:timeout")
	for name, c := range map[string]struct {
		value any // of the link property
		want  time.Duration
	}{
		"not said":  {nil, time.Minute},
		"uint":      {uint32(1500), 1500 * time.Millisecond},
		"long":      {int64(2000), 2 * time.Second},
		"at once":   {uint32(0), 0},
		"negative":  {int32(-1), time.Minute},
		"no number": {"soon", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			sessions(t, func(t *testing.T, ns *brokertest.Namespace) {
				start := time.Now()
				properties := amqp.Map{}
				if c.value != nil {
					properties = amqp.Map{{Key: timeout, Value: c.value}}
				}
				w := acceptOver(t, ns, nil, encoded(t, properties))
				w.wantRefusal(timeout)
				if got := time.Since(start); got != c.want {
					t.Errorf("the wait took %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestAWaitForASessionEndsWithItsLink(t *testing.T) {
	for name, end := range map[string]func(*wire){
		"detach": func(w *wire) { w.send(&amqp.Detach{Closed: true}) },
		"end":    func(w *wire) { w.send(&amqp.End{}) },
		"close":  func(w *wire) { w.send(&amqp.Close{}) },
	} {
		t.Run(name, func(t *testing.T) {
			sessions(t, func(t *testing.T, ns *brokertest.Namespace) {
				w := acceptOver(t, ns, nil, nil)
				synctest.Wait()
				end(w)
				synctest.Wait()
				sendToSession(t, ns, "a")
				if a := next[*amqp.Attach](acceptOver(t, ns, "a", nil)); a.Source == nil {
					t.Error("the session is locked by a link that has gone")
				}
			})
		})
	}
}

func TestAWaitForASessionEndsWithItsQueue(t *testing.T) {
	sessions(t, func(t *testing.T, ns *brokertest.Namespace) {
		w := acceptOver(t, ns, nil, nil)
		synctest.Wait()
		if _, err := ns.Broker.Default().UpdateQueue(broker.QueueConfig{Name: "q", RequiresSession: true, MaxDeliveryCount: 3}); err != nil {
			t.Fatal(err)
		}
		w.wantRefusal(amqp.ErrCondLinkDetachForced)
		w = acceptOver(t, ns, nil, nil)
		held := acceptOver(t, ns, "held", nil)
		next[*amqp.Attach](held)
		synctest.Wait()
		if err := ns.Broker.Default().DeleteQueue("q"); err != nil {
			t.Fatal(err)
		}
		w.wantRefusal(amqp.ErrCondNotFound)
		if d := next[*amqp.Detach](held); d.Error == nil || d.Error.Condition != amqp.ErrCondNotFound {
			t.Errorf("a receiver of a session is detached with %v, want amqp:not-found", d.Error)
		}
	})
}

func TestAnAcceptThatAFaultDelaysWaitsForItsSession(t *testing.T) {
	sessions(t, func(t *testing.T, ns *brokertest.Namespace) {
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnAttach, Entity: "q", Delay: 5 * time.Second, Times: 1})
		start := time.Now()
		w := acceptOver(t, ns, nil, nil)
		time.Sleep(10 * time.Second)
		sendToSession(t, ns, "a")
		if a := next[*amqp.Attach](w); a.Source == nil {
			t.Error("the session that came is refused")
		}
		if got := time.Since(start); got < 10*time.Second || got > 11*time.Second {
			t.Errorf("the accept took %v, want 10s", got)
		}
	})
}

func TestTheLockOfAMessageInASessionIsNotRenewed(t *testing.T) {
	sessions(t, func(t *testing.T, ns *brokertest.Namespace) {
		sendToSession(t, ns, "a")
		client := ns.Client(t)
		r, err := client.AcceptSessionForQueue(t.Context(), "q", "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.ReceiveMessages(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := ns.Broker.Default().Entity("q")
		if err != nil {
			t.Fatal(err)
		}
		until, err := q.Queue().Sessions().LockedUntil("a")
		if err != nil || !ms[0].LockedUntil.Equal(until.Truncate(time.Millisecond)) {
			t.Errorf("message locked until %v, want %v like its session, %v", ms[0].LockedUntil, until, err)
		}
		if _, err := q.Queue().RenewLocks([]queue.LockToken{ms[0].LockToken}); err == nil {
			t.Error("the lock of a message was renewed without that of its session")
		}
	})
}
