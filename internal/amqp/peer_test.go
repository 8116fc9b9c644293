// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	goamqp "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
)

// peer is just enough of a server to hold a conversation with go-amqp's client: it takes one
// message, gives it back, and notes what the client said.
type peer struct {
	t       *testing.T
	conn    net.Conn
	out     chan []byte
	said    []string
	message []byte // what the client sent
	outcome DeliveryState
}

const peerFrameSize = 1024

func (p *peer) send(frame []byte) { p.out <- bytes.Clone(frame) }

// write has a goroutine of its own: a pipe does not buffer, and the client may be writing too.
func (p *peer) write() {
	for frame := range p.out {
		if _, err := p.conn.Write(frame); err != nil {
			p.t.Errorf("writing: %v", err)
			return
		}
	}
}

func (p *peer) run() {
	defer close(p.out)
	fr := NewFrameReader(p.conn, peerFrameSize)
	if h, err := fr.ReadProto(); h != ProtoSASL || err != nil {
		p.t.Errorf("first header %v, %v", h, err)
		return
	}
	p.send(ProtoSASL[:])
	p.send(AppendSASLFrame(nil, &SASLMechanisms{Mechanisms: []Symbol{"ANONYMOUS"}}))
	f, err := fr.Next()
	if err != nil || f.Type != FrameSASL {
		p.t.Errorf("sasl-init: %+v, %v", f, err)
		return
	}
	p.note(f.Body)
	p.send(AppendSASLFrame(nil, &SASLOutcome{}))
	if h, err := fr.ReadProto(); h != ProtoAMQP || err != nil {
		p.t.Errorf("second header %v, %v", h, err)
		return
	}
	p.send(ProtoAMQP[:])
	for {
		f, err := fr.Next()
		if err != nil {
			p.t.Errorf("reading: %v", err)
			return
		}
		if len(f.Body) == 0 {
			continue
		}
		performative, payload := p.note(f.Body)
		if performative == nil || !p.answer(f.Channel, performative, payload) {
			return
		}
	}
}

// note decodes what the client said, and checks that we would say it in a way that means the same.
func (p *peer) note(body []byte) (Performative, []byte) {
	said, payload, err := DecodePerformative(body)
	if err != nil {
		p.t.Errorf("decoding %x: %v", body, err)
		return nil, nil
	}
	p.said = append(p.said, Trace(said, len(payload)))
	again, _, err := DecodePerformative(said.Append(nil))
	if diff := cmp.Diff(said, again); diff != "" || err != nil {
		p.t.Errorf("%s: %v (-said +again):\n%s", Trace(said, 0), err, diff)
	}
	return said, payload
}

func (p *peer) answer(ch uint16, said Performative, payload []byte) bool {
	switch said := said.(type) {
	case *Open:
		p.send(AppendFrame(nil, 0, &Open{ContainerID: "peer", MaxFrameSize: peerFrameSize, ChannelMax: 10, IdleTimeout: 240_000}, nil))
	case *Begin:
		p.send(AppendFrame(nil, ch, &Begin{RemoteChannel: ch, HasRemoteChannel: true, IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: 9}, nil))
	case *Attach:
		reply := *said
		reply.Role = !said.Role
		reply.MaxMessageSize = 1 << 20
		p.send(AppendFrame(nil, ch, &reply, nil))
		if said.Role == RoleSender {
			p.send(AppendFrame(nil, ch, &Flow{
				HasNextIncomingID: true, IncomingWindow: 5000, OutgoingWindow: 5000, Handle: said.Handle, HasHandle: true,
				HasDeliveryCount: true, LinkCredit: 10, HasLinkCredit: true,
			}, nil))
		}
	case *Flow:
		if said.HasLinkCredit && p.outcome == nil {
			p.deliver(ch, said.Handle)
		}
	case *Transfer:
		p.message = append(p.message, payload...)
		if !said.More {
			p.send(AppendFrame(nil, ch, &Disposition{Role: RoleReceiver, Settled: true, State: Accepted{}}, nil))
		}
	case *Disposition:
		p.outcome = said.State
		p.send(AppendFrame(nil, ch, &Disposition{Role: RoleSender, First: said.First, Last: said.Last, Settled: true, State: said.State}, nil))
	case *Detach:
		p.send(AppendFrame(nil, ch, &Detach{Handle: said.Handle, Closed: true}, nil))
	case *End:
		p.send(AppendFrame(nil, ch, &End{}, nil))
	case *Close:
		return false // the client does not wait for an answer
	}
	return true
}

func (p *peer) deliver(ch uint16, handle uint32) {
	x := &Transfer{Handle: handle, HasDeliveryID: true, DeliveryTag: []byte("tag"), HasMessageFormat: true, HasSettled: true}
	for rest := p.message; len(rest) > 0; {
		n := min(peerFrameSize-len(AppendFrame(nil, ch, x, nil)), len(rest))
		x.More = n < len(rest)
		p.send(AppendFrame(nil, ch, x, rest[:n]))
		rest = rest[n:]
	}
}

func TestConversationWithGoAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		p := &peer{t: t, conn: far, out: make(chan []byte, 100)}
		go p.write()
		go p.run()

		ctx := context.Background()
		conn, err := goamqp.NewConn(ctx, near, &goamqp.ConnOptions{
			ContainerID: "client", HostName: "contoso", SASLType: goamqp.SASLTypeAnonymous(),
			Properties: map[string]any{"product": "test"},
		})
		if err != nil {
			t.Fatal(err)
		}
		session, err := conn.NewSession(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		sender, err := session.NewSender(ctx, "orders", &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeMixed.Ptr()})
		if err != nil {
			t.Fatal(err)
		}
		want := fullMessage()
		want.Data = [][]byte{bytes.Repeat([]byte("x"), 3000)}
		if err := sender.Send(ctx, want, nil); err != nil {
			t.Fatal(err)
		}
		receiver, err := session.NewReceiver(ctx, "orders", &goamqp.ReceiverOptions{
			Credit: 1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
			Filters: []goamqp.LinkFilter{goamqp.NewLinkFilter("com.microsoft:session-filter", 0x137000000C, "s1")},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := receiver.Receive(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.DeliveryTag) != "tag" {
			t.Errorf("delivery tag = %q", got.DeliveryTag)
		}
		if diff := cmp.Diff(want.Data, got.Data); diff != "" {
			t.Errorf("data (-sent +received):\n%s", diff)
		}
		reject := &goamqp.Error{Condition: "com.microsoft:dead-letter", Description: "too late", Info: map[string]any{"DeadLetterReason": "r"}}
		// go-amqp returns the error of the outcome that we answer with.
		var echoed *goamqp.Error
		if err := receiver.RejectMessage(ctx, got, reject); !errors.As(err, &echoed) || cmp.Diff(reject, echoed) != "" {
			t.Errorf("RejectMessage = %v, want what it was given", err)
		}
		state, ok := p.outcome.(*Rejected)
		if !ok {
			t.Fatalf("outcome = %#v", p.outcome)
		}
		wantError := &Error{Condition: "com.microsoft:dead-letter", Description: "too late", Info: Map{{"DeadLetterReason", "r"}}}
		if diff := cmp.Diff(wantError, state.Error); diff != "" {
			t.Errorf("error of the outcome (-want +got):\n%s", diff)
		}
		synctest.Wait() // until the client has granted the next credit
		if err := receiver.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := session.Close(ctx); err != nil {
			t.Error(err)
		}
		// The error of Close depends on which side is first to shut the pipe; go-amqp calls it
		// diagnostic.
		t.Logf("Close: %v", conn.Close())
		synctest.Wait()

		for i, want := range []string{
			"sasl-init mechanism=ANONYMOUS",
			"open container=client hostname=contoso max-frame=",
			"begin next-out=0 ",
			"attach name=",
			"transfer handle=0 id=0 tag=", "transfer handle=0 more ", "transfer handle=0 more ", "transfer handle=0 len=",
			"attach name=",
			"flow handle=1 count=0 credit=1 ",
			`disposition role=receiver first=0 settled=false state=rejected error=com.microsoft:dead-letter description="too late"`,
			"flow handle=1 count=1 credit=1 ",
			"detach handle=1 closed", "end", "close",
		} {
			if i >= len(p.said) || !strings.HasPrefix(p.said[i], want) {
				t.Fatalf("line %d is not %q; the client said\n%s", i, want, strings.Join(p.said, "\n"))
			}
		}
	})
}
