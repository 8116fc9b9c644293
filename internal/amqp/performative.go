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
