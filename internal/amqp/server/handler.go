// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"

	"overdue/internal/amqp"
)

// ErrLinkGone is returned by SourceLink.SendOut and Post once the link is detached, its session
// ended or its connection closed, whichever side began it. The message was not sent, or not to its
// end; the peer has not settled it.
var ErrLinkGone = errors.New("amqpserver: link is gone")

// ErrNoCredit is returned by SourceLink.SendOut when the peer has not granted credit for another
// delivery: credit was taken back, or drained, since the source counted on it. Nothing was sent.
var ErrNoCredit = errors.New("amqpserver: link has no credit")

// ErrWithheld is returned by SourceLink.SendOut when Outgoing.Commit said no. Nothing was sent, and
// no credit was used.
var ErrWithheld = errors.New("amqpserver: message withheld")

// ErrTooManyPosted is returned by SourceLink.Post when the peer leaves so many posted messages
// waiting for its credit or its session window that one more would cost memory without bound.
var ErrTooManyPosted = errors.New("amqpserver: too many posted messages are waiting for the peer")

// A Handler says what the connections of a server mean.
type Handler interface {
	// Connect is called when the peer's open has arrived and ours is about to be sent.
	// An error refuses the connection: open is answered by open and close with that error.
	Connect(c *Conn) (ConnHandler, *amqp.Error)
}

// A ConnHandler says what the links of one connection mean.
//
// The methods of ConnHandler, Sink and Source are called one at a time, by the connection's read
// loop or by its writer while the read loop waits for the peer, without any lock of this package
// held: they may call every method of Conn, Session, SinkLink and SourceLink except SendOut, which
// may wait for the peer. They must not block, because the connection stands still meanwhile.
type ConnHandler interface {
	// AttachSink is called when the peer wants to send to l.Attach().Target, or to the transaction
	// coordinator if l.Attach().Coordinator is set. It returns the Sink that takes the deliveries, or
	// an error that refuses the link: the peer then gets attach with a null target, followed by detach
	// with closed=true and the error. l.Reply may be changed until AttachSink returns.
	AttachSink(l *SinkLink) (Sink, *amqp.Error)

	// AttachSource is called when the peer wants to receive from l.Attach().Source; otherwise like
	// AttachSink. A nil Source without an error defers the answer: the attach stays unanswered until
	// l.Accept or l.Refuse is called, from any goroutine (a receiver that waits for the next free
	// session). Nothing can be sent before the link is attached: SendOut waits, Post keeps.
	AttachSource(l *SourceLink) (Source, *amqp.Error)

	// Closed is the last call: the connection is gone and every link's Detached has been called. err
	// is nil when both sides closed it without an error.
	Closed(err error)
}

// A Sink takes the deliveries of one link on which the peer sends.
type Sink interface {
	// Deliver hands over one complete message. The sink owns d and d.Payload from here on.
	// Unless d.Settled, it calls SinkLink.Settle once for d, now or later, from any goroutine.
	Deliver(d *Delivery)

	// Detached is called once, when the link is over; nothing is delivered afterwards and Settle has
	// no effect. err is nil if it was closed without an error, else what the closing side said, or why
	// the session or connection ended.
	Detached(err *amqp.Error)
}

// A Source produces the deliveries of one link on which the peer receives.
type Source interface {
	// Flow is called whenever the peer states its credit.
	Flow(f Flow)

	// Disposition says that the peer states one outcome for ds, deliveries of this link in the order
	// of their sending. settled=true: they are forgotten already. settled=false: the peer
	// (rcv-settle-mode second) waits for SourceLink.Settle, now or later, from any goroutine. A
	// terminal outcome is reported once per delivery; repetitions are dropped. st is nil when the peer
	// settles without an outcome. The slice is only valid during the call, its elements stay valid.
	Disposition(ds []*Outgone, st amqp.DeliveryState, settled bool)

	// Detached is called once, when the link is over. Deliveries that were not settled are dropped
	// from the session without a word to the peer; what becomes of them is the source's to say. err as
	// in Sink.
	Detached(err *amqp.Error)
}

// A Flow is the credit of one source link, as the peer has just stated it.
type Flow struct {
	Credit uint32 // deliveries that may still be sent, net of everything sent so far
	Added  int64  // change of the allowance since the previous Flow; for a source that counts on its own: it holds
	// for deliveries already taken but not yet sent, and for credit given up by Drained. Negative when
	// taken back.
	Drain bool // the peer wants SourceLink.Drained as soon as nothing more is at hand, also when Credit is 0
}

// A Delivery is one message that the peer has sent. Its fields belong to the sink.
type Delivery struct {
	Tag     []byte
	Format  uint32             // message-format
	Settled bool               // pre-settled: no disposition is wanted
	State   amqp.DeliveryState // what the peer attached to the transfer, such as a transactional state; usually nil
	Payload []byte             // the whole message, never reused by this package

	link   *SinkLink
	id     uint32
	second bool     // the peer settles second, see Settle
	done   bool     // settled by the sink, or by the peer; guarded by the connection's mutex
	tag    [32]byte // room for Tag, so that it costs no allocation
}

// Link returns the link that d came on.
func (d *Delivery) Link() *SinkLink { return d.link }

// An Outgoing is one message for a peer.
type Outgoing struct {
	Tag     []byte // 1 to 32 bytes, unique among the link's unsettled deliveries. Copied
	Payload []byte // the encoded message. Copied before Send returns
	Format  uint32 // message-format
	Settled bool   // pre-settled: the peer states no outcome
	Token   any    // handed back with the disposition, as Outgone.Token
	// Commit, of SendOut, is asked once there is credit and room, right before the first frame is
	// queued: whatever must have happened when the peer gets the message, and must not when it does
	// not. It is called with the connection locked, so it must not wait, or call anything of this
	// package. false withholds the message. nil is true.
	Commit func() bool
}

// An Outgone is a delivery that has been sent and is not settled.
type Outgone struct {
	Token any // as given to Send

	link    *SourceLink
	id      uint32
	stated  bool // the peer has stated a terminal outcome and waits for Settle
	settled bool // forgotten by the session; guarded by the connection's mutex
}

// Link returns the link that o was sent on.
func (o *Outgone) Link() *SourceLink { return o.link }

// A Reply is what a link's attach answers; the handler may change it until its AttachSink or
// AttachSource returns (or until Accept, when the answer is deferred). Settle modes are always
// echoed as the peer asked for them.
type Reply struct {
	Source               *amqp.Source      // default: the peer's, echoed
	Target               *amqp.Target      // default: the peer's, echoed
	Coordinator          *amqp.Coordinator // default: the peer's, echoed
	Properties           amqp.Raw          // link properties; default none
	OfferedCapabilities  amqp.Raw          // default none
	MaxMessageSize       uint64            // bytes, both sent and enforced; default Config.MaxMessageSize
	Credit               uint32            // sink links: deliveries outstanding or unsettled at a time; default 1000
	InitialDeliveryCount uint32            // source links
	// SettleFirst, of sink links: Settle settles at once, also where the peer asked for
	// rcv-settle-mode second. For dialects whose senders ask for it and then wait for the receiver all
	// the same.
	SettleFirst bool
}
