// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
)

const (
	answerTimeout = 30 * time.Second // ends a test that would hang
	maxFrameSize  = 64 << 10         // bytes
)

// An outcome is what a client knows of an operation.
type outcome int

const (
	unanswered outcome = iota
	refused
	accepted
)

// A wire is a client that speaks AMQP frame by frame. No SDK for Go knows transactions, and none
// lets many operations be under way in a known order.
type wire struct {
	t      *testing.T
	nc     net.Conn
	ended  chan struct{} // closed when nothing is read any more
	links  map[string]*wireLink
	counts struct{ handles, deliveries uint32 }

	mu   sync.Mutex
	came []wireFrame   // nobody has awaited them
	over bool          // what comes from now on does not count
	news chan struct{} // closed at the next change of came and over
}

type wireFrame struct {
	amqp.Performative
	payload []byte
}

// A wireLink is one end of a link.
type wireLink struct {
	local, remote uint32 // handles
	seen          uint32 // deliveries that came
}

func connect(t *testing.T, ns *brokertest.Namespace) *wire {
	t.Helper()
	nc, err := ns.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, nc: nc, ended: make(chan struct{}), links: map[string]*wireLink{}, news: make(chan struct{})}
	go w.read()
	hello := amqp.AppendSASLFrame(append([]byte{}, amqp.ProtoSASL[:]...), &amqp.SASLInit{Mechanism: "ANONYMOUS"})
	w.write(append(hello, amqp.ProtoAMQP[:]...))
	w.send(&amqp.Open{ContainerID: "crash"}, nil)
	w.send(&amqp.Begin{IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, HandleMax: 1 << 10}, nil)
	return w
}

// end closes the connection.
func (w *wire) end() {
	w.stop()
	_ = w.nc.Close() // the broker may have gone
	<-w.ended
}

// stop makes what comes from now on not count.
func (w *wire) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.tellLocked()
}

func (w *wire) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

func (w *wire) tellLocked() {
	close(w.news)
	w.news = make(chan struct{})
}

func (w *wire) read() {
	defer close(w.ended)
	defer w.stop()
	fr := amqp.NewFrameReader(w.nc, 1<<20)
	for range 2 { // a SASL layer, and AMQP
		if _, err := fr.ReadProto(); err != nil {
			return
		}
		for {
			f, err := fr.Next()
			if err != nil {
				return
			}
			p, payload, err := amqp.DecodePerformative(bytes.Clone(f.Body))
			if err != nil {
				continue // a keep-alive
			}
			w.take(p, payload)
			if _, last := p.(*amqp.SASLOutcome); last {
				break
			}
		}
	}
}

// take keeps a frame until somebody awaits it, and a disposition for each of its deliveries.
func (w *wire) take(p amqp.Performative, payload []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if d, ok := p.(*amqp.Disposition); ok {
		for id := d.First; id != d.Last+1; id++ {
			w.came = append(w.came, wireFrame{&amqp.Disposition{Role: d.Role, First: id, Last: id, Settled: d.Settled, State: d.State}, nil})
		}
	} else {
		w.came = append(w.came, wireFrame{p, payload})
	}
	w.tellLocked()
}

// next returns the next frame that fits. It reports false when none comes that counts.
func next[T amqp.Performative](w *wire, fits func(T) bool) (p T, payload []byte, ok bool) {
	w.t.Helper()
	late := time.After(answerTimeout)
	for {
		w.mu.Lock()
		for i, f := range w.came {
			if p, is := f.Performative.(T); is && fits(p) {
				w.came = slices.Delete(w.came, i, i+1)
				w.mu.Unlock()
				return p, f.payload, true
			}
		}
		over, news := w.over, w.news
		w.mu.Unlock()
		if over {
			return p, nil, false
		}
		select {
		case <-news:
		case <-late:
			w.t.Fatalf("no %T came", p)
		}
	}
}

// write does not fail when the broker is gone: then nothing comes.
func (w *wire) write(b []byte) { _, _ = w.nc.Write(b) }

func (w *wire) send(p amqp.Performative, payload []byte) {
	w.write(amqp.AppendFrame(nil, 0, p, payload))
}

// attach returns the link that has this name, nil when the broker is gone.
func (w *wire) attach(name string, role amqp.Role, change func(*amqp.Attach)) *wireLink {
	w.t.Helper()
	if l := w.links[name]; l != nil {
		return l
	}
	a := &amqp.Attach{
		Name:          fmt.Sprint(name, " ", w.counts.handles),
		Handle:        w.counts.handles,
		Role:          role,
		SndSettleMode: amqp.SndMixed,
		RcvSettleMode: amqp.RcvSecond,
	}
	w.counts.handles++
	change(a)
	w.send(a, nil)
	answer, _, ok := next(w, func(b *amqp.Attach) bool { return b.Name == a.Name })
	if !ok {
		return nil
	}
	if answer.Source == nil || answer.Target == nil && answer.Coordinator == nil {
		d, _, _ := next(w, func(d *amqp.Detach) bool { return d.Handle == answer.Handle })
		w.t.Fatalf("%s was refused: %v", name, d)
	}
	w.links[name] = &wireLink{local: a.Handle, remote: answer.Handle}
	return w.links[name]
}

// forget parts with the links of an entity, which the broker has detached.
func (w *wire) forget(name string) { delete(w.links, name) }

// detach ends a link.
func (w *wire) detach(name string) {
	w.t.Helper()
	l := w.links[name]
	w.forget(name)
	w.send(&amqp.Detach{Handle: l.local, Closed: true}, nil)
	next(w, func(d *amqp.Detach) bool { return d.Handle == l.remote })
}

func (w *wire) sender(to string) *wireLink {
	w.t.Helper()
	return w.attach("to "+to, amqp.RoleSender, func(a *amqp.Attach) {
		a.Source, a.Target = &amqp.Source{}, &amqp.Target{Address: to, HasAddress: true}
	})
}

// transfer sends a message, or a batch, and returns the number of the delivery.
func (w *wire) transfer(l *wireLink, format uint32, txn, payload []byte) (delivery uint32) {
	id := w.counts.deliveries
	w.counts.deliveries++
	t := &amqp.Transfer{
		Handle:           l.local,
		DeliveryID:       id,
		HasDeliveryID:    true,
		DeliveryTag:      binary.BigEndian.AppendUint32(nil, id),
		MessageFormat:    format,
		HasMessageFormat: true,
	}
	if txn != nil {
		t.State = &amqp.TransactionalState{TxnID: txn}
	}
	w.send(t, payload)
	return id
}

// outcomeOf waits for what became of a delivery. role is the peer's.
func (w *wire) outcomeOf(delivery uint32, role amqp.Role) (o outcome, state amqp.DeliveryState) {
	w.t.Helper()
	d, _, ok := next(w, func(d *amqp.Disposition) bool { return d.Role == role && d.First == delivery })
	if !ok {
		return unanswered, nil
	}
	if no, is := d.State.(*amqp.Rejected); is && no.Error != nil {
		return refused, d.State
	}
	return accepted, d.State
}

// receive grants a credit for one more message, and waits for it.
func (w *wire) receive(l *wireLink) (t *amqp.Transfer, m amqp.Message, o outcome) {
	w.t.Helper()
	w.credit(l)
	return w.message(l)
}

func (w *wire) credit(l *wireLink) {
	w.send(&amqp.Flow{
		IncomingWindow:   1 << 20,
		OutgoingWindow:   1 << 20,
		HasHandle:        true,
		Handle:           l.local,
		DeliveryCount:    l.seen,
		HasDeliveryCount: true,
		LinkCredit:       1,
		HasLinkCredit:    true,
	}, nil)
}

// message waits for a message, or for the end of its link, which refuses it.
func (w *wire) message(l *wireLink) (t *amqp.Transfer, m amqp.Message, o outcome) {
	w.t.Helper()
	var payload []byte
	for more := true; more; {
		p, part, ok := next(w, func(p amqp.Performative) bool {
			t, isTransfer := p.(*amqp.Transfer)
			d, isDetach := p.(*amqp.Detach)
			return isTransfer && t.Handle == l.remote || isDetach && d.Handle == l.remote
		})
		if !ok {
			return nil, m, unanswered
		}
		got, isTransfer := p.(*amqp.Transfer)
		if !isTransfer {
			return nil, m, refused
		}
		if t == nil {
			t = got
		}
		payload, more = append(payload, part...), got.More
	}
	l.seen++
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	return t, m, accepted
}

// manage asks the management node of an entity.
func (w *wire) manage(entity, operation string, body amqp.Map) (o outcome, answer amqp.Answer) {
	w.t.Helper()
	address := entity + "/$management"
	var ends [2]*wireLink
	for i, role := range []amqp.Role{amqp.RoleSender, amqp.RoleReceiver} {
		ends[i] = w.attach(fmt.Sprint(role, " of ", address), role, func(a *amqp.Attach) {
			a.Source, a.Target = &amqp.Source{Address: address, HasAddress: true}, &amqp.Target{Address: address, HasAddress: true}
		})
		if ends[i] == nil {
			return unanswered, answer
		}
	}
	request := amqp.Message{
		Properties:            encoded(amqp.List{"id", nil, nil, nil, address}),
		ApplicationProperties: encoded(amqp.Map{{Key: "operation", Value: "com.microsoft:" + operation}}),
		Body:                  amqp.AppendValueSection(nil, encoded(body)),
	}
	w.credit(ends[1])
	w.transfer(ends[0], 0, nil, request.Append(nil))
	_, m, o := w.message(ends[1])
	if o != accepted {
		return o, answer
	}
	if answer = amqp.ReadAnswer(&m); answer.Status >= 400 {
		return refused, answer
	}
	return accepted, answer
}

// encoded is a value as AMQP has it.
func encoded(v any) amqp.Raw {
	b, err := amqp.AppendValue(nil, v)
	if err != nil {
		panic(err) // of a constant shape
	}
	return b
}

// encode is a message on the wire.
func (l *modelMessage) encode(base time.Time) []byte {
	m := amqp.Message{
		Properties: encoded(amqp.List{l.id, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}),
		Body:       amqp.AppendData(nil, bodyOf(l.number, l.size)),
	}
	if l.session != "" {
		m.Properties = encoded(amqp.List{l.id, nil, nil, nil, nil, nil, nil, nil, nil, nil, l.session})
	}
	if l.ttl > 0 {
		m.Header = encoded(amqp.List{true, nil, uint32(l.ttl.Milliseconds())})
	}
	if l.eu {
		m.ApplicationProperties = encoded(amqp.Map{{Key: "region", Value: "eu"}})
	}
	if l.due > 0 {
		m.MessageAnnotations = encoded(amqp.Map{{Key: amqp.Symbol("x-opt-scheduled-enqueue-time"), Value: amqp.TimestampOf(base.Add(l.due))}})
	}
	return m.Append(nil)
}
