// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"bytes"
	"fmt"
	"os/exec"
	"sync"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
)

func TestBrokersOfOthersBehindTheRelay(t *testing.T) {
	if testing.Short() {
		t.Skip("needs RabbitMQ and proton; not with -short")
	}
	proxy := built(t)
	for name, begin := range map[string]func(*testing.T) *broker{"RabbitMQ": rabbit, "proton": proton} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			for _, c := range []struct {
				name  string
				visit func(*visit)
			}{
				{"every kind of message", everyKind},
				{"settled by the sender", presettled},
				{"outcomes of a receiver", outcomes},
				{"many links", manyLinks},
				{"what does not exist", missing},
				{"proton for a client", protonClient},
			} {
				t.Run(c.name, func(t *testing.T) { compare(t, b, alone(), c.visit) })
			}
			for _, frames := range []struct{ client, relay uint32 }{{513, 65536}, {65536, 512}, {513, 512}, {65536, 65536}} {
				t.Run(fmt.Sprintf("1 MiB in frames of %d and %d bytes", frames.client, frames.relay), func(t *testing.T) {
					compare(t, b, alone(func(c *relay.Config) { c.MaxFrameSize = frames.relay }), func(v *visit) {
						v.frame = frames.client
						large(v)
					})
				})
			}
			if b.plain {
				t.Run("a wrong password", func(t *testing.T) { compare(t, b, alone(), wrongPassword) })
			} else {
				t.Run("a node that the broker makes", func(t *testing.T) { compare(t, b, alone(), dynamic) })
			}
			t.Run("every delivery watched", func(t *testing.T) {
				compare(t, b, alone(watchAll), everyKind)
			})
			t.Run("overdue proxy", func(t *testing.T) { compare(t, b, proxy, everyKind) })
		})
	}
}

func TestOutcomesForASender(t *testing.T) {
	if testing.Short() {
		t.Skip("needs proton; not with -short")
	}
	b := proton(t)
	for _, watch := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched %v", watch), func(t *testing.T) {
			through := alone()
			if watch {
				through = alone(watchAll)
			}
			compare(t, b, through, refusals)
		})
	}
}

func watchAll(c *relay.Config) { c.Watch = func(relay.Link) relay.Watcher { return watched{} } }

// watched lets every delivery wait until it resumes at once, and changes nothing.
type watched struct{}

func (watched) Deliver(*relay.Delivery) (relay.DeliveryHandler, *amqp.Error) { return queued{}, nil }
func (watched) Detached()                                                    {}

type queued struct{}

var _ relay.QueuedDelivery = queued{}

func (queued) Before(r relay.Resumer) (wait bool)                    { r.Resume(nil); return true }
func (queued) Settled(_ amqp.DeliveryState, answerer relay.Answerer) { answerer.Answer(nil) }

// everyKind sends messages of every kind, each over a connection of its own since a broker may
// close one for what it does not take, and gets them back.
func everyKind(v *visit) {
	for i, m := range kinds() {
		if v.broker.plain && breaksRabbit(m) {
			continue
		}
		conn := v.connect()
		s := v.session(conn)
		queue := v.queue(fmt.Sprintf("kind-%d", i))
		sender, err := s.NewSender(v.ctx, queue, nil)
		if err == nil {
			err = sender.Send(v.ctx, m, nil)
		}
		v.note("message %d: sending: %v", i, err)
		if err == nil {
			r := v.receiver(s, queue, &goamqp.ReceiverOptions{Credit: -1})
			v.must(r.IssueCredit(1))
			got, err := r.Receive(v.ctx, nil)
			v.note("message %d: receiving: %v", i, err)
			if err == nil {
				v.must(r.AcceptMessage(v.ctx, got))
				v.leave(conn)
				continue
			}
		}
		_ = conn.Close() // the broker may have
	}
}

// presettled sends messages that nobody settles, and gets some so.
func presettled(v *visit) {
	conn := v.connect()
	s := v.session(conn)
	sender := v.sender(s, v.queue("presettled"), &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
	for i := range 10 {
		v.must(sender.Send(v.ctx, goamqp.NewMessage(fmt.Appendf(nil, "message %d", i)), nil))
	}
	r := v.receiver(s, v.queue("presettled"), &goamqp.ReceiverOptions{Credit: 3, RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr()})
	for range 10 {
		v.note("%s", v.receive(r).GetData())
	}
	v.leave(conn)
}

// outcomes settles messages in every way there is.
func outcomes(v *visit) {
	conn := v.connect()
	s := v.session(conn)
	queue := v.queue("outcomes")
	sender := v.sender(s, queue, nil)
	r := v.receiver(s, queue, &goamqp.ReceiverOptions{Credit: -1})
	for _, settle := range []struct {
		name  string
		do    func(r *goamqp.Receiver, m *goamqp.Message) error
		again bool
	}{
		{"accepted", func(r *goamqp.Receiver, m *goamqp.Message) error { return r.AcceptMessage(v.ctx, m) }, false},
		{"rejected", func(r *goamqp.Receiver, m *goamqp.Message) error {
			return r.RejectMessage(v.ctx, m, &goamqp.Error{Condition: "client:no", Description: "do not want", Info: map[string]any{"why": "because"}})
		}, false},
		{"released", func(r *goamqp.Receiver, m *goamqp.Message) error { return r.ReleaseMessage(v.ctx, m) }, true},
		{"modified", func(r *goamqp.Receiver, m *goamqp.Message) error {
			return r.ModifyMessage(v.ctx, m, &goamqp.ModifyMessageOptions{DeliveryFailed: true, Annotations: goamqp.Annotations{"x-opt-seen": int32(7)}})
		}, true},
	} {
		if settle.name == "modified" && v.broker.plain {
			continue
		}
		v.must(sender.Send(v.ctx, goamqp.NewMessage([]byte(settle.name)), nil))
		v.must(r.IssueCredit(1))
		m := v.receive(r)
		v.note("%s: got %s", settle.name, m.GetData())
		v.must(settle.do(r, m))
		if settle.again {
			v.must(r.IssueCredit(1))
			m = v.receive(r)
			v.note("%s: got %s again, header %+v", settle.name, m.GetData(), m.Header)
			v.must(r.AcceptMessage(v.ctx, m))
		}
	}
	v.leave(conn)
}

// wrongPassword comes with one. Nothing is on the wire but SASL.
func wrongPassword(v *visit) {
	_, err := goamqp.Dial(v.ctx, "amqp://"+v.addr, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain("guest", "wrong")})
	v.note("%v", err)
	if err == nil {
		v.Errorf("a wrong password is taken")
	}
}

// refusals sends to queues that take nothing.
func refusals(v *visit) {
	conn := v.connect()
	s := v.session(conn)
	for _, name := range []string{"reject", "release", "modify", "accept"} {
		sender := v.sender(s, v.queue(name), nil)
		for i := range 3 {
			receipt, err := sender.SendWithReceipt(v.ctx, goamqp.NewMessage([]byte{byte(i)}), nil)
			v.must(err)
			state, err := receipt.Wait(v.ctx)
			v.note("%s: %T, %v", name, state, err)
			if r, ok := state.(*goamqp.StateRejected); ok {
				v.note("%v", r.Error)
			}
		}
	}
	v.must(conn.Close())
}

// manyLinks has senders and receivers side by side in many sessions of one connection.
func manyLinks(v *visit) {
	const sessions, pairs, messages = 10, 10, 20
	conn := v.connect()
	var g sync.WaitGroup
	failures := make(chan error, sessions*pairs*2)
	for i := range sessions {
		s := v.session(conn)
		for j := range pairs {
			queue := v.queue(fmt.Sprintf("links-%d-%d", i, j))
			sender, receiver := v.sender(s, queue, nil), v.receiver(s, queue, &goamqp.ReceiverOptions{Credit: 7})
			g.Go(func() {
				for k := range messages {
					if err := sender.Send(v.ctx, goamqp.NewMessage(fmt.Appendf(nil, "%d %d %d", i, j, k)), nil); err != nil {
						failures <- fmt.Errorf("sending to %s: %w", queue, err)
						return
					}
				}
			})
			g.Go(func() {
				for k := range messages {
					m, err := receiver.Receive(v.ctx, nil)
					if err == nil {
						err = receiver.AcceptMessage(v.ctx, m)
					}
					if err != nil {
						failures <- fmt.Errorf("receiving from %s: %w", queue, err)
						return
					}
					if got, want := string(m.GetData()), fmt.Sprintf("%d %d %d", i, j, k); got != want {
						failures <- fmt.Errorf("from %s came %q, want %q", queue, got, want)
						return
					}
				}
			})
		}
	}
	g.Wait()
	close(failures)
	for err := range failures {
		v.Errorf("%v", err)
	}
	v.leave(conn)
}

// dynamic receives from a queue that has no name yet.
func dynamic(v *visit) {
	conn := v.connect()
	s := v.session(conn)
	r := v.receiver(s, "", &goamqp.ReceiverOptions{DynamicAddress: true})
	if r.Address() == "" {
		v.Fatalf("the node has no address")
	}
	sender := v.sender(s, r.Address(), nil)
	v.must(sender.Send(v.ctx, goamqp.NewMessage([]byte("to you alone")), nil))
	m := v.receive(r)
	v.note("got %s", m.GetData())
	v.must(r.AcceptMessage(v.ctx, m))
	v.leave(conn)
}

// missing attaches to what is not there. A broker may end the session, or the connection.
func missing(v *visit) {
	for _, attach := range []func(*goamqp.Session) error{
		func(s *goamqp.Session) error { _, err := s.NewSender(v.ctx, v.broker.missing, nil); return err },
		func(s *goamqp.Session) error { _, err := s.NewReceiver(v.ctx, v.broker.missing, nil); return err },
	} {
		conn := v.connect()
		err := attach(v.session(conn))
		v.note("%T %v", err, err)
		if err == nil {
			v.Errorf("attaching to %s succeeds", v.broker.missing)
		}
		_ = conn.Close() // the broker may have
	}
}

// large sends messages of many frames, and gets them back.
func large(v *visit) {
	conn := v.connect()
	s := v.session(conn)
	queue := v.queue(fmt.Sprintf("large-%d", v.frame))
	sender, r := v.sender(s, queue, nil), v.receiver(s, queue, &goamqp.ReceiverOptions{Credit: 2})
	for i := range 3 {
		body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)[i:]
		for j := 0; j < len(body); j += 1009 {
			body[j] = byte(j + i)
		}
		v.must(sender.Send(v.ctx, goamqp.NewMessage(body), nil))
		m := v.receive(r)
		if !bytes.Equal(m.GetData(), body) {
			v.Errorf("message %d has %d bytes that differ, want the %d that were sent", i, len(m.GetData()), len(body))
		}
		v.note("%d bytes", len(m.GetData()))
		v.must(r.AcceptMessage(v.ctx, m))
	}
	v.leave(conn)
}

// protonClient has a client of another maker send, receive and drain. It prints what it saw.
func protonClient(v *visit) {
	args := []string{"-B", "client.py", "amqp://" + v.addr, v.queue("proton")}
	if v.broker.plain {
		args = []string{"-B", "client.py", "amqp://guest:guest@" + v.addr, v.queue("proton"), "plain"}
	}
	cmd := exec.CommandContext(v.ctx, "/usr/bin/python3", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		v.Fatalf("client.py: %v\n%s", err, &stderr)
	}
	if !bytes.HasSuffix(out, []byte("done\n")) {
		v.Errorf("client.py ended with %q, want done", out[max(0, len(out)-100):])
	}
	v.note("%s", out)
}
