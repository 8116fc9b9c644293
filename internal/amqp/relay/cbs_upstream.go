// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"overdue/internal/amqp"
)

// errPairLost is wrapped by the error of a put whose links ended before the answer came.
var errPairLost = errors.New("the links to $cbs were lost")

// Handles of the pair on the relay's own session.
const (
	handleRequests  = 0
	handleResponses = 1
)

const (
	pairWindow = 1024 // transfer frames that the upstream may send on the pair's session
	pairCredit = 64   // responses
	maxPuts    = 4096 // puts that wait for credit or an answer
)

// A pair is the relay's own pair of links to $cbs on one upstream connection, on a session that
// no client sees. The first token opens it. The service ends links that idle; the next token
// opens the pair again.
//
//	closed ─ put ─▶ opening ─ both attached ─▶ open ─ detach, end ─▶ ending ─ end ─▶ closed
type pair struct {
	sync.Locker // the connection's; guards all fields
	// send queues a frame on the channel of the pair, under the lock. It does not
	// block and calls nothing of the pair.
	send     func(p amqp.Performative, payload []byte)
	maxFrame func() uint32 // of the upstream, bytes; called under the lock

	state pairState
	puts  map[uint64]*put // all that wait
	queue []*put          // those not yet sent, in order
	next  uint64          // id of a put

	attached [2]bool // by our handle
	theirs   [2]uint32
	nextOut  uint32 // transfer-id
	room     uint32 // transfer frames that upstream accepts
	count    uint32 // deliveries sent on the link for requests
	credit   uint32 // requests that upstream accepts
	nextIn   uint32 // transfer-id
	window   uint32 // transfer frames that the upstream may still send
	taken    uint32 // deliveries received
	owed     uint32 // responses that the upstream may still send
	partial  []byte // of a response
}

type pairState uint8

const (
	pairClosed pairState = iota
	pairOpening
	pairOpen
	pairEnding
)

// A put is one request. Its id counts the requests of the pair; delivery is its delivery-id on
// the session.
type put struct {
	id       uint64
	payload  []byte
	sent     bool
	delivery uint32
	done     chan putAnswer // of room one
}

type putAnswer struct {
	res response
	err error
}

func newPair(lock sync.Locker, send func(amqp.Performative, []byte), maxFrame func() uint32) *pair {
	return &pair{Locker: lock, send: send, maxFrame: maxFrame, puts: make(map[uint64]*put)}
}

// pairReplyTo is the address of the link for responses.
const pairReplyTo = "overdue-cbs"

// put puts a token for audience and returns the answer. The error wraps
// errPairLost when the links ended meanwhile.
//
// The relay puts a token of its own for each that a client puts, and the client gets this answer:
// SDKs learn from $cbs that an entity does not exist. That of Go has an error code for it there,
// and none for a link that is refused with amqp:not-found.
func (p *pair) put(ctx context.Context, audience string, t Token) (response, error) {
	q := &put{done: make(chan putAnswer, 1)}
	p.Lock()
	if len(p.puts) >= maxPuts {
		p.Unlock()
		return response{}, errors.New("too many token requests wait for the namespace")
	}
	q.id = p.next
	p.next++
	q.payload = putTokenMessage(q.id, pairReplyTo, audience, t)
	p.puts[q.id] = q
	p.queue = append(p.queue, q)
	if p.state == pairClosed {
		p.openLocked()
	}
	p.flushLocked()
	p.Unlock()

	select {
	case a := <-q.done:
		return a.res, a.err
	case <-ctx.Done():
		p.Lock()
		defer p.Unlock()
		p.forgetLocked(q)
		return response{}, ctx.Err()
	}
}

func (p *pair) forgetLocked(q *put) {
	delete(p.puts, q.id)
	for i, other := range p.queue {
		if other == q {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			return
		}
	}
}

// openLocked sends begin and both attaches at once; only requests wait for the answers.
func (p *pair) openLocked() {
	p.state = pairOpening
	p.attached = [2]bool{}
	p.nextOut, p.room, p.count, p.credit = 0, 0, 0, 0
	p.nextIn, p.window, p.taken, p.owed, p.partial = 0, pairWindow, 0, 0, nil
	p.send(&amqp.Begin{IncomingWindow: pairWindow, OutgoingWindow: pairWindow, HandleMax: handleResponses}, nil)
	p.send(&amqp.Attach{
		Name: "overdue-cbs-requests", Handle: handleRequests, Role: amqp.RoleSender,
		SndSettleMode: amqp.SndMixed, RcvSettleMode: amqp.RcvFirst,
		Source: &amqp.Source{Address: pairReplyTo, HasAddress: true},
		Target: &amqp.Target{Address: addressCBS, HasAddress: true},
	}, nil)
	p.send(&amqp.Attach{
		Name: "overdue-cbs-responses", Handle: handleResponses, Role: amqp.RoleReceiver,
		SndSettleMode: amqp.SndSettled, RcvSettleMode: amqp.RcvFirst,
		Source: &amqp.Source{Address: addressCBS, HasAddress: true},
		Target: &amqp.Target{Address: pairReplyTo, HasAddress: true},
	}, nil)
}

// frameLocked handles a frame of upstream on the pair's session. An error ends the connection:
// upstream does not speak AMQP.
func (p *pair) frameLocked(frame amqp.Performative, payload []byte) *amqp.Error {
	switch f := frame.(type) {
	case *amqp.End:
		return p.endedLocked(f.Error)
	case *amqp.Begin:
		if p.state != pairEnding {
			p.nextIn, p.room = f.NextOutgoingID, f.IncomingWindow
		}
		return nil
	}
	if p.state != pairOpening && p.state != pairOpen {
		return nil // sent before upstream received our end
	}
	switch f := frame.(type) {
	case *amqp.Attach:
		return p.attachLocked(f)
	case *amqp.Flow:
		p.flowLocked(f)
	case *amqp.Transfer:
		return p.transferLocked(f, payload)
	case *amqp.Disposition:
		p.dispositionLocked(f)
	case *amqp.Detach:
		p.endLocked(f.Error)
	}
	return nil
}

func (p *pair) attachLocked(f *amqp.Attach) *amqp.Error {
	ours := handleRequests
	if f.Role == amqp.RoleSender {
		ours = handleResponses
	}
	if p.attached[ours] {
		return amqp.Errorf(amqp.ErrCondSessionHandleInUse, "The link %.64q is attached already.", f.Name)
	}
	p.attached[ours], p.theirs[ours] = true, f.Handle
	if ours == handleResponses {
		p.taken = f.InitialDeliveryCount
		p.grantLocked()
	}
	if p.attached[handleRequests] && p.attached[handleResponses] {
		p.state = pairOpen
		p.flushLocked()
	}
	return nil
}

// flowLocked updates the windows. Credit counts from the delivery-count that both sides know.
func (p *pair) flowLocked(f *amqp.Flow) {
	seen := f.NextIncomingID
	if !f.HasNextIncomingID {
		seen = 0 // sent before our begin came; our transfer-ids begin there
	}
	p.room = seen + f.IncomingWindow - p.nextOut
	if f.HasHandle && p.attached[handleRequests] && f.Handle == p.theirs[handleRequests] && f.HasLinkCredit {
		p.credit = f.DeliveryCount + f.LinkCredit - p.count
		if int32(p.credit) < 0 {
			p.credit = 0
		}
		if f.Drain {
			p.count += p.credit
			p.credit = 0
			p.send(&amqp.Flow{
				NextIncomingID: p.nextIn, HasNextIncomingID: true, IncomingWindow: p.window,
				NextOutgoingID: p.nextOut, OutgoingWindow: pairWindow,
				Handle: handleRequests, HasHandle: true, DeliveryCount: p.count, HasDeliveryCount: true,
				HasLinkCredit: true, Drain: true,
			}, nil)
		}
	}
	if f.Echo {
		p.grantLocked()
	}
	p.flushLocked()
}

// grantLocked grants upstream window and credit.
func (p *pair) grantLocked() {
	p.window, p.owed = pairWindow, pairCredit
	p.send(&amqp.Flow{
		NextIncomingID: p.nextIn, HasNextIncomingID: true, IncomingWindow: p.window,
		NextOutgoingID: p.nextOut, OutgoingWindow: pairWindow,
		Handle: handleResponses, HasHandle: true, DeliveryCount: p.taken, HasDeliveryCount: true,
		LinkCredit: p.owed, HasLinkCredit: true,
	}, nil)
}

// flushLocked sends the requests for which there is credit and window. It sends a request as a
// whole or not at all: every window holds a few frames, and a token needs no more.
func (p *pair) flushLocked() {
	for p.state == pairOpen && p.credit > 0 && len(p.queue) > 0 {
		q := p.queue[0]
		frames := p.cut(q.payload)
		if uint32(len(frames)) > p.room || int32(p.room) < 0 {
			return
		}
		p.queue[0] = nil
		p.queue = p.queue[1:]
		q.sent, q.delivery = true, p.count
		for i, payload := range frames {
			t := &amqp.Transfer{Handle: handleRequests, More: i < len(frames)-1}
			if i == 0 {
				t.DeliveryID, t.HasDeliveryID = p.count, true
				t.DeliveryTag = []byte{byte(p.count >> 24), byte(p.count >> 16), byte(p.count >> 8), byte(p.count)}
				t.HasMessageFormat = true
			}
			p.send(t, payload)
		}
		n := uint32(len(frames))
		p.nextOut += n
		p.room -= n
		p.count++
		p.credit--
	}
}

// cut splits a payload to fit the frames of upstream.
func (p *pair) cut(payload []byte) (frames [][]byte) {
	const overhead = 64 // more than the largest transfer that the pair sends
	for room := int(min(p.maxFrame(), math.MaxInt32)) - overhead; len(payload) > room; payload = payload[room:] {
		frames = append(frames, payload[:room])
	}
	return append(frames, payload)
}

func (p *pair) transferLocked(f *amqp.Transfer, payload []byte) *amqp.Error {
	p.nextIn++
	if p.window == 0 {
		return amqp.Errorf(amqp.ErrCondSessionWindowViolation, "A transfer came beyond the window.")
	}
	p.window--
	if !p.attached[handleResponses] || f.Handle != p.theirs[handleResponses] {
		return amqp.Errorf(amqp.ErrCondSessionUnattachedHandle, "A transfer came for the handle %d.", f.Handle)
	}
	if len(p.partial)+len(payload) > maxTokenMessage {
		p.endLocked(amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "A response on $cbs is longer than %d bytes.", maxTokenMessage))
		return nil
	}
	if f.HasDeliveryID && !f.Settled && !f.More {
		p.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: f.DeliveryID, Last: f.DeliveryID, Settled: true, State: amqp.Accepted{}}, nil)
	}
	if f.More {
		p.partial = append(p.partial, payload...)
	} else {
		if !f.Aborted {
			p.answerLocked(append(p.partial, payload...))
		}
		p.partial = p.partial[:0]
		p.taken++
		p.owed = max(p.owed, 1) - 1
	}
	if p.owed < pairCredit/2 || p.window < pairWindow/2 {
		p.grantLocked()
	}
	return nil
}

// answerLocked hands a response to the put that waits for it. A late response finds none.
func (p *pair) answerLocked(payload []byte) {
	id, res, err := readTokenResponse(payload)
	if err != nil {
		return // the put times out
	}
	p.finishLocked(p.puts[id], putAnswer{res: res})
}

func (p *pair) finishLocked(q *put, a putAnswer) {
	if q != nil {
		p.forgetLocked(q)
		q.done <- a
	}
}

// dispositionLocked ends the puts whose requests upstream does not accept: upstream will not
// answer them.
func (p *pair) dispositionLocked(f *amqp.Disposition) {
	if f.Role != amqp.RoleReceiver {
		return
	}
	if !f.Settled {
		p.send(&amqp.Disposition{Role: amqp.RoleSender, First: f.First, Last: f.Last, Settled: true, State: f.State}, nil)
	}
	var err error
	switch st := f.State.(type) {
	case *amqp.Rejected:
		err = errors.New("the namespace rejected the token request")
		if st.Error != nil {
			err = st.Error
		}
	case amqp.Released, *amqp.Modified:
		err = fmt.Errorf("the namespace released the token request: %w", errPairLost)
	default:
		return
	}
	last := f.Last
	for _, q := range p.puts {
		if q.sent && q.delivery-f.First <= last-f.First {
			p.finishLocked(q, putAnswer{err: err})
		}
	}
}

// endLocked ends the session and fails the puts that wait.
func (p *pair) endLocked(why *amqp.Error) {
	p.state = pairEnding
	p.send(&amqp.End{}, nil)
	p.loseLocked(why)
}

func (p *pair) loseLocked(why *amqp.Error) {
	err := errPairLost
	if why != nil {
		err = fmt.Errorf("%w: %w", errPairLost, why)
	}
	for _, q := range p.puts {
		p.finishLocked(q, putAnswer{err: err})
	}
}

// endedLocked handles upstream's end, whichever side began it. Puts that were queued since get a
// new session.
func (p *pair) endedLocked(why *amqp.Error) *amqp.Error {
	switch p.state {
	case pairClosed:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "An end came for a session that is not there.")
	case pairOpening, pairOpen:
		p.send(&amqp.End{}, nil)
		p.loseLocked(why)
	}
	p.state = pairClosed
	if len(p.queue) > 0 {
		p.openLocked()
	}
	return nil
}
