// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
)

// A raw is a client that shows what stands in each frame: for what the SDKs look
// at and go-amqp hides, such as absent fields and the types of values.
type raw struct {
	t          *testing.T
	write      func([]byte)
	in         chan frame
	backlog    []frame // what came and nobody has awaited
	deliveries uint32
}

// null is how a field looks that is absent.
const null = 0x40

// A frame is one frame with its bytes.
type frame struct {
	amqp.Performative
	body    []byte // of the frame, the payload included
	payload []byte
}

// rawOver opens a connection and a session.
func rawOver(t *testing.T, ns *brokertest.Namespace, open *amqp.Open) *raw {
	t.Helper()
	nc, err := ns.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{t: t, in: make(chan frame, 1000)}
	r.write = func(b []byte) {
		t.Helper()
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.read(amqp.NewFrameReader(nc, 1<<20))
	}()
	t.Cleanup(func() {
		_ = nc.Close()
		<-done
	})
	r.write(amqp.ProtoSASL[:])
	r.write(amqp.AppendSASLFrame(nil, &amqp.SASLInit{Mechanism: "ANONYMOUS"}))
	r.write(amqp.ProtoAMQP[:])
	r.send(open, nil)
	r.send(&amqp.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 1000}, nil)
	return r
}

// read passes on what comes until the test closes the connection.
func (r *raw) read(fr *amqp.FrameReader) {
	for range 2 { // a SASL layer, and AMQP
		if _, err := fr.ReadProto(); err != nil {
			return
		}
		for {
			f, err := fr.Next()
			if err != nil {
				return
			}
			body := bytes.Clone(f.Body)
			p, payload, err := amqp.DecodePerformative(body)
			if err != nil {
				continue // a keep-alive
			}
			r.in <- frame{p, body, payload}
			if _, last := p.(*amqp.SASLOutcome); last {
				break
			}
		}
	}
}

func (r *raw) send(p amqp.Performative, payload []byte) {
	r.t.Helper()
	r.write(amqp.AppendFrame(nil, 0, p, payload))
}

// await returns the next frame of that type. Others stay for later.
func await[T amqp.Performative](r *raw) (T, frame) {
	r.t.Helper()
	for i, f := range r.backlog {
		if p, ok := f.Performative.(T); ok {
			r.backlog = slices.Delete(r.backlog, i, i+1)
			return p, f
		}
	}
	for {
		select {
		case f := <-r.in:
			if p, ok := f.Performative.(T); ok {
				return p, f
			}
			r.backlog = append(r.backlog, f)
		case <-r.t.Context().Done():
			var want T
			r.t.Fatalf("no %T came", want)
		}
	}
}

// fields returns the fields of the performative of a frame, as many as were
// written.
func (f frame) fields(t *testing.T) []amqp.Raw {
	t.Helper()
	r := amqp.NewReader(f.body)
	r.Descriptor()
	return listed(t, &r)
}

// listed reads the elements of a list.
func listed(t *testing.T, r *amqp.Reader) (all []amqp.Raw) {
	t.Helper()
	sub, n := r.List()
	for range n {
		all = append(all, sub.Raw())
	}
	if r.Err() != nil || sub.Err() != nil {
		t.Fatalf("reading a list: %v, %v", r.Err(), sub.Err())
	}
	return all
}

// values reads a map with string or symbol keys. An absent one is empty.
func values(t *testing.T, m amqp.Raw) map[string]any {
	t.Helper()
	if m == nil {
		return nil
	}
	r := amqp.NewReader(m)
	pairs, _ := r.Value().(amqp.Map)
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	all := make(map[string]any)
	for _, p := range pairs {
		all[fmt.Sprint(p.Key)] = p.Value
	}
	return all
}

// attach attaches a link: role is the client's. The address is also that of its
// own end.
func (r *raw) attach(handle uint32, role amqp.Role, address string, change ...func(*amqp.Attach)) (*amqp.Attach, frame) {
	r.t.Helper()
	a := &amqp.Attach{
		Name: fmt.Sprint("link ", handle), Handle: handle, Role: role, SndSettleMode: amqp.SndMixed,
		Source: &amqp.Source{Address: address, HasAddress: true},
		Target: &amqp.Target{Address: address, HasAddress: true},
	}
	for _, f := range change {
		f(a)
	}
	r.send(a, nil)
	return await[*amqp.Attach](r)
}

// transfer sends a message on a link and returns the outcome.
func (r *raw) transfer(handle, format uint32, message []byte) amqp.DeliveryState {
	r.t.Helper()
	id := r.deliveries
	r.deliveries++
	t := &amqp.Transfer{
		Handle: handle, DeliveryID: id, HasDeliveryID: true, DeliveryTag: fmt.Append(nil, id),
		MessageFormat: format, HasMessageFormat: true, More: true,
	}
	for t.More { // in frames that everybody takes
		n := min(len(message), 60_000)
		t.More = n < len(message)
		r.send(t, message[:n])
		message = message[n:]
	}
	d, _ := await[*amqp.Disposition](r)
	if d.First != id || !d.Settled || d.Role != amqp.RoleReceiver {
		r.t.Errorf("disposition = %s, want delivery %d settled", amqp.Trace(d, 0), id)
	}
	return d.State
}

// sent is transfer of one message that has to be accepted.
func (r *raw) sent(handle uint32, message []byte) {
	r.t.Helper()
	if st, accepted := r.transfer(handle, 0, message).(amqp.Accepted); !accepted {
		r.t.Fatalf("the message was answered with %v, want accepted", st)
	}
}

// credit grants credit for one more delivery, of which seen have come.
func (r *raw) credit(handle, seen uint32) {
	r.t.Helper()
	r.send(&amqp.Flow{
		IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: handle,
		DeliveryCount: seen, HasDeliveryCount: true, LinkCredit: 1, HasLinkCredit: true,
	}, nil)
}

// delivery returns the next delivery, which comes in one frame, and its message.
func (r *raw) delivery(handle, seen uint32) (*amqp.Transfer, amqp.Message) {
	r.t.Helper()
	r.credit(handle, seen)
	return r.message()
}

func (r *raw) message() (*amqp.Transfer, amqp.Message) {
	r.t.Helper()
	t, f := await[*amqp.Transfer](r)
	m, err := amqp.ParseMessage(f.payload)
	if err != nil {
		r.t.Fatal(err)
	}
	return t, m
}

// A requester asks on a pair of links.
type requester struct {
	r      *raw
	handle uint32 // of the sender; the receiver's is the next
	seen   uint32
}

func (r *raw) requester(handle uint32, address string) *requester {
	r.t.Helper()
	for i, role := range []amqp.Role{amqp.RoleSender, amqp.RoleReceiver} {
		a, _ := r.attach(handle+uint32(i), role, address, func(a *amqp.Attach) { a.Target.Address = address })
		if a.Source == nil || a.Target == nil {
			r.t.Fatalf("attach to %s was refused", address)
		}
	}
	return &requester{r: r, handle: handle}
}

// ask sends a request and returns the response, with the transfer it came in.
func (q *requester) ask(id any, properties amqp.Map, body any) (*amqp.Transfer, amqp.Message) {
	q.r.t.Helper()
	m := amqp.Message{
		Properties:            encoded(q.r.t, amqp.List{id, nil, nil, nil, "reply"}),
		ApplicationProperties: encoded(q.r.t, properties),
		Body:                  amqp.AppendValueSection(nil, encoded(q.r.t, body)),
	}
	q.r.credit(q.handle+1, q.seen) // nothing is worked on that cannot be answered
	q.seen++
	q.r.sent(q.handle, m.Append(nil))
	return q.r.message()
}

// manage asks for an operation and returns the status and what the answer holds.
func (q *requester) manage(operation string, body amqp.Map) (status any, answer map[string]any) {
	q.r.t.Helper()
	_, m := q.ask("id", amqp.Map{{Key: "operation", Value: operation}}, body)
	r, ok := m.Value()
	if !ok {
		q.r.t.Fatalf("%s: the answer has no value", operation)
	}
	return values(q.r.t, m.ApplicationProperties)["statusCode"], values(q.r.t, r.Raw())
}
