// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	wire "overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
)

// A txnClient is a connection that speaks AMQP frame by frame: neither the Go
// SDK nor go-amqp know transactions. It does one thing after the other and waits
// for the answer to each.
type txnClient struct {
	*scene
	nc      net.Conn
	in      chan frame
	early   []frame // deliveries that came while something else was awaited
	handles uint32  // given to links, ours
	sent    uint32  // delivery-ids given
	control uint32  // handle of the link to the coordinator
	session bool    // whose messages come: their deliveries are settled with the commit
}

// A frame is one that came.
type frame struct {
	wire.Performative
	payload []byte
}

// transactions connects, and attaches a link to the coordinator.
func (s *scene) transactions() *txnClient {
	s.Helper()
	nc, err := s.target.Dial(s.ctx)
	s.must(err)
	c := &txnClient{scene: s, nc: nc, in: make(chan frame, 1000)}
	done := make(chan struct{})
	s.Cleanup(func() {
		_ = nc.Close() // a case may have cut it
		<-done
	})
	// SASL first, pipelined: the answers are read when all of it is written.
	hello := append([]byte(nil), wire.ProtoSASL[:]...)
	init := &wire.SASLInit{Mechanism: "ANONYMOUS", InitialResponse: []byte("anonymous"), Hostname: brokertest.Host}
	if s.target.Secured {
		name, key := s.keys.key()
		init.Mechanism, init.InitialResponse = "PLAIN", []byte("\x00"+name+"\x00"+key)
	}
	hello = wire.AppendSASLFrame(hello, init)
	go c.read(done)
	c.write(hello)
	c.write(wire.ProtoAMQP[:])
	c.send(&wire.Open{ContainerID: "transactions", Hostname: brokertest.Host}, nil)
	c.send(&wire.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 100}, nil)
	c.control = c.attach(&wire.Attach{Role: wire.RoleSender, Source: &wire.Source{}, Coordinator: &wire.Coordinator{}})
	return c
}

// sending has a link to the queue, and a transaction.
func (s *scene) sending() (c *txnClient, to uint32, txn []byte) {
	s.Helper()
	c = s.transactions()
	return c, c.to(s.queue, nil), c.declare()
}

// holding has a delivery of the queue in hand.
func (s *scene) holding() (c *txnClient, id uint32) {
	s.Helper()
	c = s.transactions()
	c.from(s.queue)
	return c, c.next()
}

// read puts what comes into in until the connection ends.
func (c *txnClient) read(done chan<- struct{}) {
	defer close(done)
	defer close(c.in)
	fr := wire.NewFrameReader(c.nc, 1<<20)
	if _, err := fr.ReadProto(); err != nil {
		return
	}
	for {
		f, err := fr.Next()
		if err != nil {
			return // the end of the case, or the cut that it wants
		}
		p, payload, err := wire.DecodePerformative(f.Body)
		if err != nil {
			c.Errorf("a frame that cannot be read: %v", err)
			return
		}
		if o, ok := p.(*wire.SASLOutcome); ok {
			if o.Code != wire.SASLOK {
				c.Errorf("SASL outcome = %d, want ok", o.Code)
				return
			}
			if _, err := fr.ReadProto(); err != nil {
				return
			}
			continue
		}
		if t, ok := p.(*wire.Transfer); ok {
			t.DeliveryTag = bytes.Clone(t.DeliveryTag) // from the reader's buffer, like the payload
		}
		c.in <- frame{p, bytes.Clone(payload)}
	}
}

func (c *txnClient) write(b []byte) {
	c.Helper()
	_, err := c.nc.Write(b)
	c.must(err)
}

func (c *txnClient) send(p wire.Performative, payload []byte) {
	c.Helper()
	c.write(wire.AppendFrame(nil, 0, p, payload))
}

// await returns the next frame of that kind that is fit. Deliveries that come before it are kept
// for those who await them: what a commit gives back may be delivered again before the commit is
// answered, over another link.
func await[T wire.Performative](c *txnClient, fit func(T) bool) (T, []byte) {
	c.Helper()
	for i, f := range c.early {
		if p, ok := f.Performative.(T); ok && fit(p) {
			c.early = slices.Delete(c.early, i, i+1)
			return p, f.payload
		}
	}
	for {
		select {
		case f, open := <-c.in:
			if !open {
				c.Fatal("the connection has ended")
			}
			if p, ok := f.Performative.(T); ok && fit(p) {
				return p, f.payload
			}
			if _, delivery := f.Performative.(*wire.Transfer); delivery {
				c.early = append(c.early, f)
			}
		case <-c.ctx.Done():
			var want T
			c.Fatalf("no %T came", want)
		}
	}
}

// attach opens a link and returns our handle for it.
func (c *txnClient) attach(a *wire.Attach) uint32 {
	c.Helper()
	a.Handle = c.handles
	a.Name = fmt.Sprint("link-", c.handles)
	c.handles++
	c.send(a, nil)
	got, _ := await(c, func(b *wire.Attach) bool { return b.Name == a.Name })
	if a.Role == wire.RoleSender && got.Target == nil && got.Coordinator == nil {
		d, _ := await(c, func(*wire.Detach) bool { return true })
		c.Fatalf("attach was refused: %v", d.Error)
	}
	if a.Role == wire.RoleSender {
		await(c, func(f *wire.Flow) bool { return f.HasHandle && f.LinkCredit > 0 })
	}
	return a.Handle
}

// to opens a link to send on, properties may be nil.
func (c *txnClient) to(address string, properties wire.Raw) uint32 {
	c.Helper()
	return c.attach(&wire.Attach{
		Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: address, HasAddress: true}, Properties: properties,
	})
}

// from opens a link to receive on, in mode second and with credit.
func (c *txnClient) from(address string) {
	c.Helper()
	c.fromSource(&wire.Source{Address: address, HasAddress: true})
}

// fromSession is from for the messages of a session.
func (c *txnClient) fromSession(address, id string) {
	c.Helper()
	c.session = true
	filter, err := wire.AppendValue(nil, wire.Map{{Key: wire.Symbol("com.microsoft:session-filter"), Value: id}})
	c.must(err)
	c.fromSource(&wire.Source{Address: address, HasAddress: true, Filter: filter})
}

func (c *txnClient) fromSource(source *wire.Source) {
	c.Helper()
	handle := c.attach(&wire.Attach{Role: wire.RoleReceiver, RcvSettleMode: wire.RcvSecond, Source: source, Target: &wire.Target{}})
	c.send(&wire.Flow{
		IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: handle,
		HasDeliveryCount: true, HasLinkCredit: true, LinkCredit: 100,
	}, nil)
}

// wantNoReceiver expects a link to receive on to be refused, since the transactions of its session
// take place elsewhere.
func (c *txnClient) wantNoReceiver(address string) {
	c.Helper()
	c.attach(&wire.Attach{Role: wire.RoleReceiver, Source: &wire.Source{Address: address, HasAddress: true}, Target: &wire.Target{}})
	d, _ := await(c, func(*wire.Detach) bool { return true })
	const want = "Local transactions cannot span multiple top-level entities such as queue or topic"
	if d.Error == nil || d.Error.Condition != wire.ErrCondNotAllowed || !strings.HasPrefix(d.Error.Description, want) {
		c.Errorf("a receiver on %s was detached with %v, want amqp:not-allowed, %s", address, d.Error, want)
	}
}

// transfer sends one message and returns what became of it, nil when it is
// settled beforehand.
func (c *txnClient) transfer(handle uint32, txn []byte, settled bool, payload []byte) wire.DeliveryState {
	c.Helper()
	id := c.sent
	c.sent++
	t := &wire.Transfer{
		Handle: handle, DeliveryID: id, HasDeliveryID: true, DeliveryTag: binary.BigEndian.AppendUint32(nil, id),
		HasMessageFormat: true, Settled: settled, HasSettled: true,
	}
	if txn != nil {
		t.State = &wire.TransactionalState{TxnID: txn}
	}
	c.send(t, payload)
	if settled {
		return nil
	}
	d, _ := await(c, func(d *wire.Disposition) bool { return d.Role == wire.RoleReceiver && d.First <= id && id <= d.Last })
	if !d.Settled {
		c.Errorf("the answer to delivery %d is not settled", id)
	}
	return d.State
}

// declare begins a transaction.
func (c *txnClient) declare() []byte {
	c.Helper()
	st := c.transfer(c.control, nil, false, wire.AppendValueSection(nil, new(wire.Declare).Append(nil)))
	declared, ok := st.(*wire.Declared)
	if !ok || len(declared.TxnID) == 0 || len(declared.TxnID) > 32 {
		c.Fatalf("declare = %s, want declared with an id of 1 to 32 bytes", described(st))
	}
	return declared.TxnID
}

// discharge ends a transaction.
func (c *txnClient) discharge(txn []byte, fail bool) wire.DeliveryState {
	c.Helper()
	return c.transfer(c.control, nil, false, wire.AppendValueSection(nil, (&wire.Discharge{TxnID: txn, Fail: fail}).Append(nil)))
}

// commit expects a transaction to work.
func (c *txnClient) commit(txn []byte) {
	c.Helper()
	if st := c.discharge(txn, false); st != (wire.Accepted{}) {
		c.Fatalf("commit = %s, want accepted", described(st))
	}
}

// rollback ends a transaction without effect.
func (c *txnClient) rollback(txn []byte) {
	c.Helper()
	if st := c.discharge(txn, true); st != (wire.Accepted{}) {
		c.Fatalf("rollback = %s, want accepted", described(st))
	}
}

// text sends messages with these bodies and expects them to be accepted
// provisionally.
func (c *txnClient) text(handle uint32, txn []byte, bodies ...string) {
	c.Helper()
	for _, b := range bodies {
		c.wantProvisional(c.transfer(handle, txn, false, wire.AppendData(nil, []byte(b))), txn, wire.Accepted{})
	}
}

// next receives the next delivery.
func (c *txnClient) next() (id uint32) {
	c.Helper()
	t, _ := await(c, func(*wire.Transfer) bool { return true })
	return t.DeliveryID
}

// dispose states an outcome within a transaction and returns the answer.
func (c *txnClient) dispose(txn []byte, id uint32, outcome wire.DeliveryState) wire.DeliveryState {
	c.Helper()
	c.send(&wire.Disposition{Role: wire.RoleReceiver, First: id, Last: id, State: &wire.TransactionalState{TxnID: txn, Outcome: outcome}}, nil)
	d, _ := await(c, func(d *wire.Disposition) bool { return d.Role == wire.RoleSender && d.First <= id && id <= d.Last })
	if d.Settled == c.session {
		c.Errorf("the answer to the disposition of %d is settled %v, want %v", id, d.Settled, !c.session)
	}
	return d.State
}

// accept completes within a transaction and expects that to work.
func (c *txnClient) accept(txn []byte, id uint32) {
	c.Helper()
	c.wantProvisional(c.dispose(txn, id, wire.Accepted{}), txn, wire.Accepted{})
}

// wantProvisional checks an answer that holds if the transaction does.
func (c *txnClient) wantProvisional(st wire.DeliveryState, txn []byte, outcome wire.DeliveryState) {
	c.Helper()
	want := described(&wire.TransactionalState{TxnID: txn, Outcome: outcome})
	if got := described(st); got != want {
		c.Fatalf("answer = %s, want %s", got, want)
	}
}

// wantRefused checks that something was rejected, and why.
func (c *txnClient) wantRefused(what string, st wire.DeliveryState, want ...wire.Symbol) {
	c.Helper()
	r, ok := st.(*wire.Rejected)
	if ok && r.Error != nil && slices.Contains(want, r.Error.Condition) {
		return
	}
	c.Errorf("%s = %s, want rejected with %v", what, described(st), want)
}

// described is a state as the trace of the broker writes it.
func described(st wire.DeliveryState) string {
	return wire.Trace(&wire.Disposition{State: st}, 0)
}

// Transact sends encoded messages to an entity in a transaction, over a connection of its own, and
// returns when each was accepted. The transaction is open until end is called, which commits it or
// rolls it back. The Go SDK has no transactions.
func Transact(t *testing.T, dial func(context.Context) (net.Conn, error), entity string, encoded ...[]byte) (end func(commit bool)) {
	t.Helper()
	s := &scene{T: t, target: &Target{Dial: dial}, ctx: t.Context()}
	c := s.transactions()
	to := c.to(entity, nil)
	txn := c.declare()
	for _, m := range encoded {
		c.wantProvisional(c.transfer(to, txn, false, m), txn, wire.Accepted{})
	}
	return func(commit bool) {
		t.Helper()
		if commit {
			c.commit(txn)
		} else {
			c.rollback(txn)
		}
	}
}
