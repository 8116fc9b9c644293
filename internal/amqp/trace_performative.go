// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/hex"
	"fmt"
)

func (t *line) open(o *Open) {
	t.word("open")
	t.text("container", o.ContainerID)
	if o.Hostname != "" {
		t.text("hostname", o.Hostname)
	}
	t.number("max-frame", uint64(o.MaxFrameSize))
	t.number("channel-max", uint64(o.ChannelMax))
	t.optional("idle-ms", o.IdleTimeout, o.IdleTimeout != 0)
}

func (t *line) begin(b *Begin) {
	t.word("begin")
	t.optional("remote-channel", uint32(b.RemoteChannel), b.HasRemoteChannel)
	t.number("next-out", uint64(b.NextOutgoingID))
	t.number("in-window", uint64(b.IncomingWindow))
	t.number("out-window", uint64(b.OutgoingWindow))
	t.number("handle-max", uint64(b.HandleMax))
}

func (t *line) attach(a *Attach) {
	t.word("attach")
	t.text("name", a.Name)
	t.number("handle", uint64(a.Handle))
	t.text("role", a.Role.String())
	t.optional("snd", uint32(a.SndSettleMode), a.SndSettleMode != SndDefault)
	t.optional("rcv", uint32(a.RcvSettleMode), a.RcvSettleMode != RcvDefault)
	t.key("source")
	if a.Source == nil {
		t.word("null")
	} else {
		t.address(a.Source.Address, a.Source.HasAddress, a.Source.Dynamic)
	}
	t.key("target")
	switch {
	case a.Coordinator != nil:
		t.word("coordinator")
	case a.Target == nil:
		t.word("null")
	default:
		t.address(a.Target.Address, a.Target.HasAddress, a.Target.Dynamic)
	}
	t.optional("initial-count", a.InitialDeliveryCount, a.Role == RoleSender)
	if a.MaxMessageSize != 0 {
		t.number("max-message", a.MaxMessageSize)
	}
}

// address writes an address after its key.
func (t *line) address(address string, has, dynamic bool) {
	switch {
	case dynamic:
		t.word("dynamic")
	case has:
		t.quoted(address)
	default:
		t.word("none")
	}
}

func (t *line) flow(w *Flow) {
	t.word("flow")
	t.optional("handle", w.Handle, w.HasHandle)
	t.optional("count", w.DeliveryCount, w.HasDeliveryCount)
	t.optional("credit", w.LinkCredit, w.HasLinkCredit)
	t.optional("available", w.Available, w.HasAvailable)
	t.optional("next-in", w.NextIncomingID, w.HasNextIncomingID)
	t.number("in-window", uint64(w.IncomingWindow))
	t.number("next-out", uint64(w.NextOutgoingID))
	t.number("out-window", uint64(w.OutgoingWindow))
	t.flag("drain", w.Drain)
	t.flag("echo", w.Echo)
}

func (t *line) transfer(x *Transfer) {
	t.word("transfer")
	t.number("handle", uint64(x.Handle))
	t.optional("id", x.DeliveryID, x.HasDeliveryID)
	if x.DeliveryTag != nil {
		t.key("tag")
		t.b = hex.AppendEncode(t.b, x.DeliveryTag)
	}
	if x.HasMessageFormat && x.MessageFormat != 0 {
		t.b = fmt.Appendf(t.b, " format=0x%x", x.MessageFormat)
	}
	t.flag("more", x.More)
	if x.HasSettled {
		t.boolean("settled", x.Settled)
	}
	t.optional("rcv", uint32(x.RcvSettleMode), x.HasRcvSettleMode)
	t.state(x.State)
	t.flag("resume", x.Resume)
	t.flag("aborted", x.Aborted)
	t.flag("batchable", x.Batchable)
}

func (t *line) disposition(d *Disposition) {
	t.word("disposition")
	t.text("role", d.Role.String())
	t.number("first", uint64(d.First))
	t.optional("last", d.Last, d.Last != d.First)
	t.boolean("settled", d.Settled)
	t.state(d.State)
	t.flag("batchable", d.Batchable)
}

func (t *line) state(s DeliveryState) {
	if s == nil {
		return
	}
	t.key("state")
	switch s := s.(type) {
	case Accepted:
		t.word("accepted")
	case Released:
		t.word("released")
	case *Received:
		t.word("received")
		t.number("section", uint64(s.SectionNumber))
		t.number("offset", s.SectionOffset)
	case *Rejected:
		t.word("rejected")
		t.error(s.Error)
	case *Modified:
		t.word("modified")
		t.flag("delivery-failed", s.DeliveryFailed)
		t.flag("undeliverable-here", s.UndeliverableHere)
	case *Declared:
		t.word("declared")
		t.transaction(s.TxnID)
	case *TransactionalState:
		t.word("transactional")
		t.transaction(s.TxnID)
		t.state(s.Outcome)
	}
}

func (t *line) transaction(id []byte) {
	t.key("txn")
	t.b = hex.AppendEncode(t.b, id)
}

// sasl writes no response or additional data: they carry credentials.
func (t *line) sasl(p Performative) {
	switch p := p.(type) {
	case *SASLMechanisms:
		t.word("sasl-mechanisms")
		for _, m := range p.Mechanisms {
			t.text("offer", string(m))
		}
	case *SASLInit:
		t.word("sasl-init")
		t.text("mechanism", string(p.Mechanism))
	case *SASLOutcome:
		t.word("sasl-outcome")
		t.number("code", uint64(p.Code))
	default:
		t.b = fmt.Appendf(t.b, "%T", p)
	}
}
