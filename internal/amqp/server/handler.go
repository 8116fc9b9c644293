// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"

	"overdue/internal/amqp"
)

// ErrLinkGone is returned by SourceLink.SendOut and Post once the link is detached, its session
// ended or its connection closed, whichever side began it. The message was not sent, or only a part
// of it; the peer has not settled it.
var ErrLinkGone = errors.New("server: link is gone")

// ErrNoCredit is returned by SourceLink.SendOut when the peer has not granted credit for another
// delivery: credit was taken back, or drained, since the source counted on it. Nothing was sent.
var ErrNoCredit = errors.New("server: link has no credit")

// ErrWithheld is returned by SourceLink.SendOut when Outgoing.Commit returned false. Nothing was
// sent, and no credit was used.
var ErrWithheld = errors.New("server: message withheld")

// ErrTooManyPosted is returned by SourceLink.Post when too many posted messages wait for the peer's
// credit or session window.
var ErrTooManyPosted = errors.New("server: too many posted messages are waiting for the peer")

// A Handler serves the connections of a server.
type Handler interface {
	// Connect is called when the peer's open has arrived and ours is about to be sent. An error
	// refuses the connection: the answer is open, then close with that error.
	Connect(c *Conn) (ConnHandler, *amqp.Error)
}

// A ConnHandler serves the links of one connection.
//
// The methods of ConnHandler, Sink and Source are called one at a time, without any lock of this
// package held. The caller is the connection's read loop, or its writer while the read loop waits
// for the peer. They may call every method of Conn, Session, SinkLink and SourceLink except
// SendOut, which may wait for the peer. They must not block, because the connection would stall.
type ConnHandler interface {
	// AttachSink is called when the peer wants to send to l.Attach().Target, or to the transaction
	// coordinator if l.Attach().Coordinator is set. It returns the Sink that takes the deliveries, or
	// an error that refuses the link. In that case the peer gets attach with a null target, followed
	// by detach with closed=true and the error. AttachSink may change l.Reply until it returns.
	AttachSink(l *SinkLink) (Sink, *amqp.Error)

	// AttachSource is called when the peer wants to receive from l.Attach().Source; otherwise like
	// AttachSink. A nil Source without an error defers the answer, for instance for a receiver that
	// waits for the next free session. The attach stays unanswered until l.Accept or l.Refuse is
	// called, from any goroutine. Nothing can be sent before the link is attached: SendOut waits, Post
	// keeps.
	AttachSource(l *SourceLink) (Source, *amqp.Error)

	// Closed is the last call: the connection has ended and every link's Detached has been called. err
	// is nil when both sides closed it without an error.
	Closed(err error)
}

// A Sink takes the deliveries of one link on which the peer sends.
type Sink interface {
	// Deliver hands over one complete message. The sink owns d and d.Payload from here on.
	// Unless d.Settled, it calls SinkLink.Settle once for d, now or later, from any goroutine.
	Deliver(d *Delivery)

	// Detached is called once, when the link is over; nothing is delivered afterwards and Settle has
	// no effect. err is nil if the link was closed without an error, else the error of the closing
	// side, or the reason why the session or connection ended.
	Detached(err *amqp.Error)
}

// A Source produces the deliveries of one link on which the peer receives.
type Source interface {
	// Flow is called whenever the peer states its credit.
	Flow(f Flow)

	// Disposition reports that the peer states one outcome for ds, deliveries of this link in the
	// order of sending. settled=true: the session has dropped them. settled=false: the peer
	// (rcv-settle-mode second) waits for SourceLink.Settle, now or later, from any goroutine. A
	// terminal outcome is reported once per delivery; repetitions are dropped. st is nil when the peer
	// settles without an outcome. The slice is only valid during the call, its elements stay valid.
	Disposition(ds []*Outgone, st amqp.DeliveryState, settled bool)

	// Detached is called once, when the link is over. The session drops unsettled deliveries without a
	// frame to the peer; the source decides about them. err is as in Sink.
	Detached(err *amqp.Error)
}

// A Flow is the credit of one source link, as the peer has just stated it.
type Flow struct {
	Credit uint32 // deliveries that may still be sent, net of everything sent so far
	Added  int64  // change of the allowance since the previous Flow; for a source that counts on its own: it holds
	// for deliveries already taken but not yet sent, and for credit given up by Drained. Negative when
	// taken back.
	Drain bool // the peer wants SourceLink.Drained as soon as nothing more is at hand, even if Credit is 0
}

// A Delivery is one message that the peer has sent. Its fields belong to the sink.
type Delivery struct {
	Tag     []byte
	Format  uint32             // message-format
	Settled bool               // pre-settled: needs no disposition
	State   amqp.DeliveryState // state in the transfer, such as a transactional state; usually nil
	Payload []byte             // the whole message, never reused by this package

	link   *SinkLink
	id     uint32
	second bool     // the peer settles second, see Settle
	done   bool     // settled by the sink, or by the peer; guarded by the connection's mutex
	tag    [32]byte // buffer for Tag, to avoid an allocation
}

// Link returns the link that d came on.
func (d *Delivery) Link() *SinkLink { return d.link }

// An Outgoing is one message for a peer.
type Outgoing struct {
	Tag     []byte // unique among the link's unsettled deliveries. Copied
	Payload []byte // the encoded message. Copied before Send returns
	Format  uint32 // message-format
	Settled bool   // pre-settled: the peer states no outcome
	// Batchable says that the peer may state outcomes later, several at once.
	Batchable bool
	Token     any // returned with the disposition, as Outgone.Token
	// Commit is called by SendOut when there is credit and room, right before the first frame is
	// queued, for actions that must happen if and only if the peer gets the message. The connection is
	// locked meanwhile, so Commit must not wait or call this package. false withholds the message. nil
	// means true.
	Commit func() bool
}

// An Outgone is a delivery that has been sent and is not settled.
type Outgone struct {
	Token any // as given to Send

	link    *SourceLink
	id      uint32
	stated  bool // the peer has stated a terminal outcome and waits for Settle
	settled bool // dropped by the session; guarded by the connection's mutex
}

// Link returns the link that o was sent on.
func (o *Outgone) Link() *SourceLink { return o.link }

// A Reply is the answer to an attach. The handler may change it until its AttachSink or
// AttachSource returns (or until Accept, if the answer is deferred). The snd-settle-mode is always
// echoed.
type Reply struct {
	Source              *amqp.Source       // default: the peer's, echoed
	Target              *amqp.Target       // default: the peer's, echoed
	Coordinator         *amqp.Coordinator  // default: the peer's, echoed
	Properties          amqp.Raw           // link properties; default none
	OfferedCapabilities amqp.Raw           // default none
	RcvSettleMode       amqp.RcvSettleMode // default: the peer's, echoed
	// MaxMessageSize is in bytes. On a sink link, the default is Config.MaxMessageSize, a lower limit
	// of the peer holds, and it is enforced; 2⁶⁴−1 states no limit and enforces the default. On a
	// source link, the default is 2⁶⁴−1.
	MaxMessageSize       uint64
	Credit               uint32 // sink links: deliveries outstanding or unsettled at a time; default 1000
	InitialDeliveryCount uint32 // source links
	// SettleFirst, of sink links: Settle settles at once, even if the peer requested rcv-settle-mode
	// second. It is for dialects whose senders request that mode and then wait for the receiver
	// anyway.
	SettleFirst bool
	// SettleNow, of sink links: Settle writes the outcome before it returns, so that what is sent
	// afterwards follows it.
	SettleNow bool
	// Resident links are never idle, and do not keep their connection open.
	Resident bool
}
