// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
)

// A wire is a receiving link spoken frame by frame, for what go-amqp does not
// do: it settles one delivery at a time and drains with a link-credit of zero.
type wire struct {
	t    *testing.T
	send func(amqp.Performative)
	in   chan amqp.Performative
}

// receiveOver attaches a receiver of mode second to q.
func receiveOver(t *testing.T, ns *brokertest.Namespace) *wire {
	t.Helper()
	return attachOver(t, ns, &amqp.Source{Address: "q", HasAddress: true}, nil)
}

// attachOver attaches a receiver of mode second to a source.
func attachOver(t *testing.T, ns *brokertest.Namespace, source *amqp.Source, properties amqp.Raw) *wire {
	t.Helper()
	w := connectOver(t, ns)
	w.send(&amqp.Attach{
		Name: "link", Role: amqp.RoleReceiver, SndSettleMode: amqp.SndUnsettled, RcvSettleMode: amqp.RcvSecond,
		Source: source, Target: &amqp.Target{}, Properties: properties,
	})
	return w
}

// connectOver opens a connection and a session.
func connectOver(t *testing.T, ns *brokertest.Namespace) *wire {
	t.Helper()
	nc, err := ns.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, in: make(chan amqp.Performative, 1000)}
	w.send = func(p amqp.Performative) {
		t.Helper()
		if _, err := nc.Write(amqp.AppendFrame(nil, 0, p, nil)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fr := amqp.NewFrameReader(nc, 1<<20)
		if _, err := fr.ReadProto(); err != nil {
			return
		}
		for {
			f, err := fr.Next()
			if err != nil {
				return // the test closes the connection
			}
			if p, _, err := amqp.DecodePerformative(f.Body); err == nil {
				w.in <- p
			}
		}
	}()
	t.Cleanup(func() {
		_ = nc.Close()
		<-done
	})
	if _, err := nc.Write(amqp.ProtoAMQP[:]); err != nil {
		t.Fatal(err)
	}
	w.send(&amqp.Open{ContainerID: "wire"})
	w.send(&amqp.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 10})
	return w
}

// flow grants credit, counted from the beginning of the link plus seen.
func (w *wire) flow(seen, credit uint32, drain bool) {
	w.t.Helper()
	w.send(&amqp.Flow{
		IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true,
		DeliveryCount: seen, HasDeliveryCount: true, LinkCredit: credit, HasLinkCredit: true, Drain: drain,
	})
}

// next returns the next performative of that type.
func next[T amqp.Performative](w *wire) T {
	w.t.Helper()
	for {
		select {
		case p := <-w.in:
			if got, ok := p.(T); ok {
				return got
			}
		case <-w.t.Context().Done():
			var want T
			w.t.Fatalf("no %T came", want)
		}
	}
}

// fillQueue sends empty messages to q.
func fillQueue(t *testing.T, ns *brokertest.Namespace, n int) {
	t.Helper()
	client := ns.Client(t)
	for range n {
		if err := send(t, client, "q", &azservicebus.Message{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADrainIsAnsweredBehindTheMessagesItAsksFor(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		fillQueue(t, ns, 3)
		w := receiveOver(t, ns)
		w.flow(0, 2, true) // fewer than there are
		for want := range uint32(2) {
			if got := next[*amqp.Transfer](w).DeliveryID; got != want {
				t.Errorf("delivery-id = %d, want %d", got, want)
			}
		}
		f := next[*amqp.Flow](w)
		if !f.Drain || f.LinkCredit != 0 || f.DeliveryCount != 2 {
			t.Errorf("answer = %+v, want drain, no credit, delivery-count 2", f)
		}
		w.flow(2, 10, true) // more than there are
		next[*amqp.Transfer](w)
		f = next[*amqp.Flow](w)
		if !f.Drain || f.LinkCredit != 0 || f.DeliveryCount != 12 {
			t.Errorf("answer = %+v, want drain, no credit, delivery-count 12", f)
		}
		// The credit that was drained is gone.
		fillQueue(t, ns, 1)
		synctest.Wait()
		if n := len(w.in); n != 0 {
			t.Errorf("%d performatives came without credit", n)
		}
		w.flow(12, 1, false)
		next[*amqp.Transfer](w)
	})
}

// Credit that the client takes back while deliveries wait for its window is not lost for credit
// that it grants later. No message is lost either, whatever becomes of the messages that are sent.
func TestCreditTakenBackIsGrantedAnew(t *testing.T) {
	for mode, name := range map[amqp.SndSettleMode]string{amqp.SndUnsettled: "peek-lock", amqp.SndSettled: "receive-and-delete"} {
		t.Run(name, func(t *testing.T) { takeCreditBack(t, mode) })
	}
}

func takeCreditBack(t *testing.T, mode amqp.SndSettleMode) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		const n = 10
		fillQueue(t, ns, n)
		w := connectOver(t, ns)
		w.send(&amqp.Attach{
			Name: "link", Role: amqp.RoleReceiver, SndSettleMode: mode,
			Source: &amqp.Source{Address: "q", HasAddress: true}, Target: &amqp.Target{},
		})
		flow := func(seen, credit, window uint32) {
			w.send(&amqp.Flow{
				NextIncomingID: seen + 1, HasNextIncomingID: true, IncomingWindow: window, OutgoingWindow: 1000, HasHandle: true,
				DeliveryCount: seen, HasDeliveryCount: true, LinkCredit: credit, HasLinkCredit: true,
			})
		}
		flow(0, n, 3)
		for range 3 {
			next[*amqp.Transfer](w)
		}
		synctest.Wait() // the other seven wait for the window
		flow(3, 0, 1000)
		synctest.Wait()
		if got := len(w.in); got != 0 {
			t.Errorf("%d performatives came after the credit was taken back", got)
		}
		flow(3, n-3, 1000)
		synctest.Wait()
		for i := range n - 3 {
			if len(w.in) == 0 {
				t.Fatalf("%d messages came for the new credit, want %d", i, n-3)
			}
			next[*amqp.Transfer](w)
		}
	})
}

func TestOneDispositionSettlesMany(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		const n = 10
		fillQueue(t, ns, n)
		w := receiveOver(t, ns)
		w.flow(0, n, false)
		for range n {
			next[*amqp.Transfer](w)
		}
		// One of them is lost behind the client's back.
		q, _ := ns.Broker.Queue("q")
		token := deliveredToken(t, w, ns)
		if err := q.Complete(token); err != nil {
			t.Fatal(err)
		}
		w.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: 0, Last: n, State: amqp.Accepted{}})
		accepted, lost := 0, 0
		for accepted+lost < n+1 {
			d := next[*amqp.Disposition](w)
			if d.Role != amqp.RoleSender || !d.Settled {
				t.Fatalf("answer = %+v, want settled by the sender", d)
			}
			k := int(d.Last-d.First) + 1
			switch st := d.State.(type) {
			case amqp.Accepted:
				accepted += k
			case *amqp.Rejected:
				if st.Error == nil || st.Error.Condition != "com.microsoft:message-lock-lost" {
					t.Errorf("deliveries %d to %d: %v, want message-lock-lost", d.First, d.Last, st.Error)
				}
				lost += k
			default:
				t.Fatalf("state = %T, want accepted or rejected", st)
			}
		}
		if accepted != n || lost != 1 {
			t.Errorf("%d accepted, %d lost; want %d and 1", accepted, lost, n)
		}
		if c := q.Counts(); c.Active != 0 {
			t.Errorf("%d messages are left, want none", c.Active)
		}
	})
}

// deliveredToken has one more message delivered and returns its lock token, in
// the order of RFC 4122.
func deliveredToken(t *testing.T, w *wire, ns *brokertest.Namespace) (token [16]byte) {
	t.Helper()
	fillQueue(t, ns, 1)
	w.flow(10, 1, false)
	tag := next[*amqp.Transfer](w).DeliveryTag
	if len(tag) != len(token) {
		t.Fatalf("tag of %d bytes, want %d", len(tag), len(token))
	}
	for i, j := range [...]int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		token[i] = tag[j]
	}
	return token
}

func TestASenderNeverHasToSettle(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		w := receiveOver(t, ns)
		for i, mode := range []amqp.RcvSettleMode{amqp.RcvFirst, amqp.RcvSecond} {
			handle := uint32(i + 1)
			w.send(&amqp.Attach{
				Name: fmt.Sprint("sender ", i), Handle: handle, Role: amqp.RoleSender, RcvSettleMode: mode,
				Source: &amqp.Source{}, Target: &amqp.Target{Address: "q", HasAddress: true},
			})
			synctest.Wait()
			w.send(&amqp.Transfer{Handle: handle, DeliveryID: uint32(i), HasDeliveryID: true, DeliveryTag: []byte{1}})
			d := next[*amqp.Disposition](w)
			if _, accepted := d.State.(amqp.Accepted); !accepted || !d.Settled || d.First != uint32(i) {
				t.Errorf("rcv-settle-mode %v: %s, want delivery %d accepted and settled", mode, amqp.Trace(d, 0), i)
			}
		}
	})
}
