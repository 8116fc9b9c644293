// SPDX-License-Identifier: Apache-2.0

package amqp

// A Performative is the content of a frame: one of *Open, *Begin, *Attach, *Flow, *Transfer,
// *Disposition, *Detach, *End, *Close, and in SASL frames *SASLMechanisms, *SASLInit,
// *SASLOutcome. No mechanism of ours has a challenge.
type Performative interface {
	// Append appends the encoded performative, descriptor included, to dst.
	Append(dst []byte) []byte
}

// Role is the end of a link.
type Role bool

// The roles.
const (
	RoleSender   Role = false
	RoleReceiver Role = true
)

// String returns sender or receiver.
func (r Role) String() string {
	if r == RoleReceiver {
		return "receiver"
	}
	return "sender"
}

// SndSettleMode says what the sender of a link does about settlement.
type SndSettleMode uint8

// The sender settle modes.
const (
	SndUnsettled SndSettleMode = 0
	SndSettled   SndSettleMode = 1
	SndMixed     SndSettleMode = 2
	SndDefault   SndSettleMode = 3 // an absent field, which means mixed
)

// RcvSettleMode says when the receiver of a link settles.
type RcvSettleMode uint8

// The receiver settle modes.
const (
	RcvFirst   RcvSettleMode = 0
	RcvSecond  RcvSettleMode = 1
	RcvDefault RcvSettleMode = 2 // an absent field, which means first
)

// The defaults of absent fields.
const (
	// DefaultMaxFrameSize is the max-frame-size of an open that names none.
	DefaultMaxFrameSize = 4294967295
	// MinMaxFrameSize is the least max-frame-size that a peer may state, and the limit before open.
	MinMaxFrameSize = 512
	// DefaultChannelMax is the channel-max of an open that names none.
	DefaultChannelMax = 65535
	// DefaultHandleMax is the handle-max of a begin that names none.
	DefaultHandleMax = 4294967295
)

// Open negotiates a connection (part 2 section 7.1).
type Open struct {
	ContainerID  string
	Hostname     string // empty = absent
	MaxFrameSize uint32 // bytes; 0 is written as absent, absent is read as DefaultMaxFrameSize
	ChannelMax   uint16 // absent is read as DefaultChannelMax; always written
	IdleTimeout  uint32 // milliseconds; 0 = none

	OutgoingLocales, IncomingLocales         Raw
	OfferedCapabilities, DesiredCapabilities Raw
	Properties                               Raw
}

// Begin begins a session on a channel (part 2 section 7.2).
type Begin struct {
	RemoteChannel    uint16
	HasRemoteChannel bool
	NextOutgoingID   uint32
	IncomingWindow   uint32 // transfer frames
	OutgoingWindow   uint32 // transfer frames
	HandleMax        uint32 // absent is read as DefaultHandleMax; always written

	OfferedCapabilities, DesiredCapabilities Raw
	Properties                               Raw
}

// Attach attaches a link to a session (part 2 section 7.3).
type Attach struct {
	Name          string
	Handle        uint32
	Role          Role
	SndSettleMode SndSettleMode
	RcvSettleMode RcvSettleMode
	Source        *Source
	Target        *Target
	Coordinator   *Coordinator // set when the target is a transaction coordinator; Target is nil then

	Unsettled            Raw // map of delivery tags to delivery states
	IncompleteUnsettled  bool
	InitialDeliveryCount uint32 // written when Role is RoleSender
	MaxMessageSize       uint64 // bytes; 0 = no limit

	OfferedCapabilities, DesiredCapabilities Raw
	Properties                               Raw
}

// Flow updates the flow state of a session, and of a link when it names a handle (part 2 section
// 7.4).
type Flow struct {
	NextIncomingID    uint32
	HasNextIncomingID bool
	IncomingWindow    uint32 // transfer frames
	NextOutgoingID    uint32
	OutgoingWindow    uint32 // transfer frames
	Handle            uint32
	HasHandle         bool
	DeliveryCount     uint32
	HasDeliveryCount  bool
	LinkCredit        uint32
	HasLinkCredit     bool
	Available         uint32
	HasAvailable      bool
	Drain             bool
	Echo              bool // false is written with a handle only
	Properties        Raw
}

// Transfer carries a message or a part of one; the payload follows it in the frame (part 2
// section 7.5).
type Transfer struct {
	Handle           uint32
	DeliveryID       uint32
	HasDeliveryID    bool
	DeliveryTag      []byte // aliases the frame it was decoded from; nil = absent; at most MaxDeliveryTag bytes
	MessageFormat    uint32
	HasMessageFormat bool
	Settled          bool
	HasSettled       bool
	More             bool
	RcvSettleMode    RcvSettleMode
	HasRcvSettleMode bool
	State            DeliveryState
	Resume           bool
	Aborted          bool
	Batchable        bool // false is written with a delivery-id only
}

// Disposition has the state of deliveries First to Last, inclusive (part 2 section 7.6).
type Disposition struct {
	Role        Role // of the peer that sends the disposition
	First, Last uint32
	Settled     bool
	State       DeliveryState // nil = absent
	Batchable   bool
}

// Detach detaches a link, or ends it when Closed (part 2 section 7.7).
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error
}

// End ends a session (part 2 section 7.8).
type End struct{ Error *Error }

// Close ends a connection (part 2 section 7.9).
type Close struct{ Error *Error }

// Append appends the encoded open.
func (o *Open) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeOpen)
	dst = AppendString(dst, o.ContainerID)
	dst = appendOptional(dst, AppendString, o.Hostname, o.Hostname != "")
	dst = appendOptionalUint(dst, o.MaxFrameSize, o.MaxFrameSize != 0)
	dst = AppendUshort(dst, o.ChannelMax)
	dst = appendOptionalUint(dst, o.IdleTimeout, o.IdleTimeout != 0)
	dst = AppendRaw(dst, o.OutgoingLocales)
	dst = AppendRaw(dst, o.IncomingLocales)
	dst = AppendRaw(dst, o.OfferedCapabilities)
	dst = AppendRaw(dst, o.DesiredCapabilities)
	dst = AppendRaw(dst, o.Properties)
	return EndList(dst, start, 10)
}

// Decode reads an open.
func (o *Open) Decode(r *Reader) error {
	f := composite(r, CodeOpen, "open")
	*o = Open{}
	if f.must("container-id") {
		o.ContainerID = f.label()
	}
	if f.has() {
		o.Hostname = f.label()
	}
	if o.MaxFrameSize = f.uint(DefaultMaxFrameSize); o.MaxFrameSize == 0 {
		f.failf("max-frame-size of 0") // which would be written as absent: no limit
	}
	o.ChannelMax = DefaultChannelMax
	if f.has() {
		o.ChannelMax = f.Ushort()
	}
	o.IdleTimeout = f.uint(0)
	o.OutgoingLocales = f.raw()
	o.IncomingLocales = f.raw()
	o.OfferedCapabilities = f.raw()
	o.DesiredCapabilities = f.raw()
	o.Properties = f.raw()
	return f.done(r)
}

// Append appends the encoded begin.
func (b *Begin) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeBegin)
	if b.HasRemoteChannel {
		dst = AppendUshort(dst, b.RemoteChannel)
	} else {
		dst = AppendNull(dst)
	}
	dst = AppendUint(dst, b.NextOutgoingID)
	dst = AppendUint(dst, b.IncomingWindow)
	dst = AppendUint(dst, b.OutgoingWindow)
	dst = AppendUint(dst, b.HandleMax)
	dst = AppendRaw(dst, b.OfferedCapabilities)
	dst = AppendRaw(dst, b.DesiredCapabilities)
	dst = AppendRaw(dst, b.Properties)
	return EndList(dst, start, 8)
}

// Decode reads a begin.
func (b *Begin) Decode(r *Reader) error {
	f := composite(r, CodeBegin, "begin")
	*b = Begin{}
	if b.HasRemoteChannel = f.has(); b.HasRemoteChannel {
		b.RemoteChannel = f.Ushort()
	}
	b.NextOutgoingID = f.mustUint("next-outgoing-id")
	b.IncomingWindow = f.mustUint("incoming-window")
	b.OutgoingWindow = f.mustUint("outgoing-window")
	b.HandleMax = f.uint(DefaultHandleMax)
	b.OfferedCapabilities = f.raw()
	b.DesiredCapabilities = f.raw()
	b.Properties = f.raw()
	return f.done(r)
}

// Append appends the encoded detach.
func (d *Detach) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeDetach)
	dst = AppendUint(dst, d.Handle)
	dst = AppendBool(dst, d.Closed)
	dst = appendError(dst, d.Error)
	return EndList(dst, start, 3)
}

// Decode reads a detach.
func (d *Detach) Decode(r *Reader) error {
	f := composite(r, CodeDetach, "detach")
	*d = Detach{}
	d.Handle = f.mustUint("handle")
	d.Closed = f.bool()
	d.Error = f.error()
	return f.done(r)
}

// Append appends the encoded end.
func (e *End) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeEnd)
	return EndList(appendError(dst, e.Error), start, 1)
}

// Decode reads an end.
func (e *End) Decode(r *Reader) error {
	f := composite(r, CodeEnd, "end")
	e.Error = f.error()
	return f.done(r)
}

// Append appends the encoded close.
func (c *Close) Append(dst []byte) []byte {
	dst, start := beginComposite(dst, CodeClose)
	return EndList(appendError(dst, c.Error), start, 1)
}

// Decode reads a close.
func (c *Close) Decode(r *Reader) error {
	f := composite(r, CodeClose, "close")
	c.Error = f.error()
	return f.done(r)
}

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
