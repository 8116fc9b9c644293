// SPDX-License-Identifier: Apache-2.0

package amqp

// Append appends the encoded attach.
func (a *Attach) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeAttach)
	dst = AppendString(dst, a.Name)
	dst = AppendUint(dst, a.Handle)
	dst = AppendBool(dst, bool(a.Role))
	dst = appendOptional(dst, AppendUbyte, uint8(a.SndSettleMode), a.SndSettleMode != SndDefault)
	dst = appendOptional(dst, AppendUbyte, uint8(a.RcvSettleMode), a.RcvSettleMode != RcvDefault)
	if a.Source != nil {
		dst = a.Source.Append(dst)
	} else {
		dst = AppendNull(dst)
	}
	switch {
	case a.Coordinator != nil:
		dst = a.Coordinator.Append(dst)
	case a.Target != nil:
		dst = a.Target.Append(dst)
	default:
		dst = AppendNull(dst)
	}
	dst = AppendRaw(dst, a.Unsettled)
	dst = appendOptionalTrue(dst, a.IncompleteUnsettled)
	dst = appendOptionalUint(dst, a.InitialDeliveryCount, a.Role == RoleSender)
	if a.MaxMessageSize != 0 {
		dst = AppendUlong(dst, a.MaxMessageSize)
	} else {
		dst = AppendNull(dst)
	}
	dst = AppendRaw(dst, a.OfferedCapabilities)
	dst = AppendRaw(dst, a.DesiredCapabilities)
	dst = AppendRaw(dst, a.Properties)
	return EndList(dst, start, 14)
}

// Decode reads an attach. If a sender's attach has no initial-delivery-count, it is 0: .NET clients
// leave it out.
func (a *Attach) Decode(r *Reader) error {
	f := composite(r, CodeAttach, "attach")
	*a = Attach{}
	if f.must("name") {
		a.Name = f.label()
	}
	a.Handle = f.mustUint("handle")
	if f.must("role") {
		a.Role = Role(f.Bool())
	}
	if a.SndSettleMode = SndDefault; f.has() {
		a.SndSettleMode = SndSettleMode(f.choice("snd-settle-mode", uint8(SndMixed)))
	}
	if a.RcvSettleMode = RcvDefault; f.has() {
		a.RcvSettleMode = RcvSettleMode(f.choice("rcv-settle-mode", uint8(RcvSecond)))
	}
	if f.has() {
		a.Source = new(Source)
		f.Fail(a.Source.Decode(&f.Reader))
	}
	if f.has() {
		f.Fail(a.decodeTarget(&f.Reader))
	}
	a.Unsettled = f.raw()
	a.IncompleteUnsettled = f.bool()
	a.InitialDeliveryCount = f.uint(0)
	if f.has() {
		a.MaxMessageSize = f.Ulong()
	}
	a.OfferedCapabilities = f.raw()
	a.DesiredCapabilities = f.raw()
	a.Properties = f.raw()
	return f.done(r)
}

func (a *Attach) decodeTarget(r *Reader) error {
	if r.PeekDescriptor() == CodeCoordinator {
		a.Coordinator = new(Coordinator)
		return a.Coordinator.Decode(r)
	}
	a.Target = new(Target)
	return a.Target.Decode(r)
}
