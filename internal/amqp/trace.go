// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Trace returns a performative on one line, for a trace of frames: its name, then its fields as
// name=value. Absent fields are left out, and a flag that is set is its name alone. The argument
// payload is the number of bytes that follow it in the frame. Neither payload nor the contents of
// SASL frames and raw fields are shown.
func Trace(p Performative, payload int) string { return string(AppendTrace(nil, p, payload)) }

// AppendTrace appends what Trace returns.
func AppendTrace(dst []byte, p Performative, payload int) []byte {
	t := line{dst}
	switch p := p.(type) {
	case nil:
		t.word("empty")
	case *Open:
		t.open(p)
	case *Begin:
		t.begin(p)
	case *Attach:
		t.attach(p)
	case *Flow:
		t.flow(p)
	case *Transfer:
		t.transfer(p)
		t.number("len", uint64(max(payload, 0)))
	case *Disposition:
		t.disposition(p)
	case *Detach:
		t.word("detach")
		t.number("handle", uint64(p.Handle))
		t.flag("closed", p.Closed)
		t.error(p.Error)
	case *End:
		t.word("end")
		t.error(p.Error)
	case *Close:
		t.word("close")
		t.error(p.Error)
	default:
		t.sasl(p)
	}
	return t.b
}

// line collects the words of a trace.
type line struct{ b []byte }

func (t *line) word(s string) { t.b = append(t.b, s...) }

func (t *line) key(name string) {
	t.b = append(t.b, ' ')
	t.b = append(t.b, name...)
	t.b = append(t.b, '=')
}

func (t *line) number(name string, v uint64) {
	t.key(name)
	t.b = strconv.AppendUint(t.b, v, 10)
}

func (t *line) optional(name string, v uint32, has bool) {
	if has {
		t.number(name, uint64(v))
	}
}

func (t *line) flag(name string, set bool) {
	if set {
		t.b = append(t.b, ' ')
		t.b = append(t.b, name...)
	}
}

func (t *line) boolean(name string, v bool) {
	t.key(name)
	t.b = strconv.AppendBool(t.b, v)
}

// maxTraceText is how many bytes of a peer's text a trace shows.
const maxTraceText = 200

// text quotes everything but plain words: texts come from the peer, and a trace must stay on one
// line.
func (t *line) text(name, v string) {
	t.key(name)
	if v != "" && len(v) <= maxTraceText && !strings.ContainsFunc(v, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' }) {
		t.b = append(t.b, v...)
		return
	}
	t.quoted(v)
}

func (t *line) quoted(v string) {
	t.b = strconv.AppendQuoteToASCII(t.b, v[:min(len(v), maxTraceText)])
	if len(v) > maxTraceText {
		t.b = append(t.b, "..."...)
	}
}

func (t *line) error(e *Error) {
	if e == nil {
		return
	}
	t.text("error", string(e.Condition))
	if e.Description != "" {
		t.text("description", e.Description)
	}
}

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
