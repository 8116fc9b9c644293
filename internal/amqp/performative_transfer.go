// SPDX-License-Identifier: Apache-2.0

package amqp

// MaxDeliveryTag is the most bytes of a delivery tag. The specification has 32 (part 2 section
// 2.8.7); older SDKs for Java send the 36 characters of a UUID, and Service Bus takes them.
const MaxDeliveryTag = 255

// Append appends the encoded transfer.
func (t *Transfer) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeTransfer)
	dst = AppendUint(dst, t.Handle)
	dst = appendOptionalUint(dst, t.DeliveryID, t.HasDeliveryID)
	dst = appendOptionalBinary(dst, t.DeliveryTag)
	dst = appendOptionalUint(dst, t.MessageFormat, t.HasMessageFormat)
	dst = appendOptionalBool(dst, t.Settled, t.HasSettled)
	dst = AppendBool(dst, t.More)
	dst = appendOptional(dst, AppendUbyte, uint8(t.RcvSettleMode), t.HasRcvSettleMode)
	dst = appendState(dst, t.State)
	dst = appendOptionalTrue(dst, t.Resume)
	dst = appendOptionalTrue(dst, t.Aborted)
	dst = appendOptionalBool(dst, t.Batchable, t.Batchable || t.HasDeliveryID)
	return EndList(dst, start, 11)
}

// Decode reads a transfer, up to its payload, which is the Rest of r. DeliveryTag aliases the input
// of r. Nothing is allocated, unless the state is one with fields.
func (t *Transfer) Decode(r *Reader) error {
	f := composite(r, CodeTransfer, "transfer")
	*t = Transfer{}
	t.Handle = f.mustUint("handle")
	t.DeliveryID, t.HasDeliveryID = f.optionalUint()
	if f.has() {
		if t.DeliveryTag = f.Binary(); len(t.DeliveryTag) > MaxDeliveryTag {
			f.failf("delivery tag of %d bytes", len(t.DeliveryTag))
		}
	}
	t.MessageFormat, t.HasMessageFormat = f.optionalUint()
	if t.HasSettled = f.has(); t.HasSettled {
		t.Settled = f.Bool()
	}
	t.More = f.bool()
	if t.HasRcvSettleMode = f.has(); t.HasRcvSettleMode {
		t.RcvSettleMode = RcvSettleMode(f.choice("rcv-settle-mode", uint8(RcvSecond)))
	}
	t.State = f.state()
	t.Resume = f.bool()
	t.Aborted = f.bool()
	t.Batchable = f.bool()
	return f.done(r)
}

// Append appends the encoded disposition.
func (d *Disposition) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeDisposition)
	dst = AppendBool(dst, bool(d.Role))
	dst = AppendUint(dst, d.First)
	dst = appendOptionalUint(dst, d.Last, d.Last != d.First)
	dst = AppendBool(dst, d.Settled)
	dst = appendState(dst, d.State)
	dst = appendOptionalTrue(dst, d.Batchable)
	return EndList(dst, start, 6)
}

// Decode reads a disposition. Whether Last comes after First is not checked: they are serial
// numbers and may wrap.
func (d *Disposition) Decode(r *Reader) error {
	f := composite(r, CodeDisposition, "disposition")
	*d = Disposition{}
	if f.must("role") {
		d.Role = Role(f.Bool())
	}
	d.First = f.mustUint("first")
	d.Last = f.uint(d.First)
	d.Settled = f.bool()
	d.State = f.state()
	d.Batchable = f.bool()
	return f.done(r)
}

// Append appends the encoded flow.
func (w *Flow) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeFlow)
	dst = appendOptionalUint(dst, w.NextIncomingID, w.HasNextIncomingID)
	dst = AppendUint(dst, w.IncomingWindow)
	dst = AppendUint(dst, w.NextOutgoingID)
	dst = AppendUint(dst, w.OutgoingWindow)
	dst = appendOptionalUint(dst, w.Handle, w.HasHandle)
	dst = appendOptionalUint(dst, w.DeliveryCount, w.HasDeliveryCount)
	dst = appendOptionalUint(dst, w.LinkCredit, w.HasLinkCredit)
	dst = appendOptionalUint(dst, w.Available, w.HasAvailable)
	dst = appendOptionalTrue(dst, w.Drain)
	dst = appendOptionalBool(dst, w.Echo, w.Echo || w.HasHandle)
	dst = AppendRaw(dst, w.Properties)
	return EndList(dst, start, 11)
}

// Decode reads a flow.
func (w *Flow) Decode(r *Reader) error {
	f := composite(r, CodeFlow, "flow")
	*w = Flow{}
	w.NextIncomingID, w.HasNextIncomingID = f.optionalUint()
	w.IncomingWindow = f.mustUint("incoming-window")
	w.NextOutgoingID = f.mustUint("next-outgoing-id")
	w.OutgoingWindow = f.mustUint("outgoing-window")
	w.Handle, w.HasHandle = f.optionalUint()
	w.DeliveryCount, w.HasDeliveryCount = f.optionalUint()
	w.LinkCredit, w.HasLinkCredit = f.optionalUint()
	w.Available, w.HasAvailable = f.optionalUint()
	w.Drain = f.bool()
	w.Echo = f.bool()
	w.Properties = f.raw()
	return f.done(r)
}
