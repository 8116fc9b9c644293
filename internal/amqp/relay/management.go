// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// A replyLink is a link over which a client gets the responses of a management node upstream. The
// relay itself answers there the requests that a watcher refuses: most clients wait for a
// response and not for the outcome of their request.
//
// A response of the relay takes credit that upstream counts as its own. So the link's
// delivery-counts on the two sides differ by the number of these responses.
type replyLink struct {
	node    string // key of the node's address
	target  string // of the client's attach; its requests name it as reply-to
	credit  uint32 // of the client
	count   uint32 // delivery-count, as the client sees it
	ready   bool   // attached on both sides
	drains  bool   // the client drains; upstream answers for the credit left
	unlike  bool   // the delivery-counts of the two sides differ
	settled bool   // deliveries are sent settled
	waiting [][]byte
}

// asReplyLinkLocked makes l a link for responses.
func (l *link) asReplyLinkLocked(a *amqp.Attach) {
	if l.class.Kind != rights.Responses {
		return
	}
	l.reply = &replyLink{node: l.class.Address.Key()}
	if a.Target != nil {
		l.reply.target = a.Target.Address
	}
	l.s.c.replies = append(l.s.c.replies, l)
}

// attachedLocked applies upstream's attach on its way to the client.
func (r *replyLink) attachedLocked(a *amqp.Attach) {
	r.ready, r.count = true, a.InitialDeliveryCount
	r.settled = a.SndSettleMode != amqp.SndUnsettled
}

// grantedLocked applies a flow of the client.
func (r *replyLink) grantedLocked(f *amqp.Flow) {
	if f.HasLinkCredit {
		left := int32(f.LinkCredit)
		if f.HasDeliveryCount {
			left = int32(f.DeliveryCount + f.LinkCredit - r.count)
		}
		r.credit = uint32(max(left, 0))
	}
	r.drains = f.Drain
}

// countedLocked applies upstream's delivery-count, converted to the client's.
func (r *replyLink) countedLocked(count uint32) {
	r.credit -= min(count-r.count, r.credit)
	r.count = count
}

// mayGoLocked reports whether the client has credit for a delivery. While the counts of both
// sides are equal, upstream decides.
func (r *replyLink) mayGoLocked() bool { return !r.unlike || r.credit > 0 }

// goesLocked counts a delivery to the client; own marks a response of the relay.
func (l *link) goesLocked(own bool) {
	r := l.reply
	r.count++
	r.credit -= min(r.credit, 1)
	if own {
		l.skipped-- // the client has counted it, upstream has not
		r.unlike = true
	}
}

// answerDrainLocked passes on upstream's flow for a link with responses that wait here. The
// client has no credit left, and grants no more before its drain is over.
func (l *link) answerDrainLocked(f *amqp.Flow) {
	if !f.Drain {
		return
	}
	h := &l.s.halves[client]
	g := &h.side.flow
	*g = amqp.Flow{
		Handle: l.ends[client].out, HasHandle: true,
		DeliveryCount: l.reply.count, HasDeliveryCount: true,
		HasLinkCredit: true, Drain: true,
	}
	h.sendFlowLocked(g)
}

// respondLocked sends a response of the relay, or keeps it until the client grants credit.
func (l *link) respondLocked(payload []byte) {
	r := l.reply
	if r.credit == 0 || r.drains {
		if len(r.waiting) == maxReplies {
			l.breakLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "More than %d responses wait for credit.", maxReplies))
			return
		}
		r.waiting = append(r.waiting, payload)
		return
	}
	l.s.c.tags++
	tag := []byte{'o', byte(l.s.c.tags), byte(l.s.c.tags >> 8), byte(l.s.c.tags >> 16), byte(l.s.c.tags >> 24)}
	l.s.halves[upstream].passLocked(&entry{link: l, local: true, payload: l.s.c.names.response(payload), transfer: amqp.Transfer{
		HasDeliveryID: true, DeliveryTag: tag, HasMessageFormat: true, Settled: r.settled, HasSettled: true,
	}})
}

// respondWaitingLocked sends the responses that now have credit, and lets upstream's later ones
// through.
func (l *link) respondWaitingLocked() {
	r := l.reply
	if r.unlike {
		l.s.halves[upstream].pumpLocked()
	}
	for len(r.waiting) > 0 && r.credit > 0 && !r.drains && !l.gone {
		payload := r.waiting[0]
		r.waiting = r.waiting[1:]
		l.respondLocked(payload)
	}
}

// replyLinkLocked finds the link for the response to a request of l, as the broker would: the one
// that the request names, else the only one. nil = none.
func (l *link) replyLinkLocked(replyTo string) (found *link) {
	n := 0
	for _, other := range l.s.c.replies {
		if r := other.reply; r.node != l.requests || !r.ready || other.ends[client].sentDetach || other.ends[client].gotDetach {
			continue
		}
		if replyTo != "" && (other.reply.target == replyTo || other.name == replyTo) {
			return other
		}
		found = other
		n++
	}
	if n != 1 {
		return nil
	}
	return found
}

// answerRefusedLocked answers a refused request with the refusal. It reports false if there is no
// link for the answer.
func (l *link) answerRefusedLocked(d *Delivery, e *amqp.Error) bool {
	if l.requests == "" {
		return false
	}
	m, err := amqp.ParseMessage(d.Payload)
	if err != nil {
		return false
	}
	to := returnAddressOf(&m)
	way := l.replyLinkLocked(to.replyTo)
	if way == nil || to.messageID == nil {
		return false
	}
	way.respondLocked(refusedAlike(e).encode(&to))
	return true
}

// forgetReplyLinkLocked drops a link for responses that has ended. Requests that await a response
// over it get none.
func (c *conn) forgetReplyLinkLocked(l *link) {
	if i := slices.Index(c.replies, l); i >= 0 {
		c.replies = slices.Delete(c.replies, i, i+1)
	}
	l.reply.waiting = nil
	for _, k := range c.requests {
		if k.link.requests == l.reply.node && k.link.replyLinkLocked(k.to.replyTo) == nil {
			c.forgetRequestLocked(k)
			k.asked = true
			c.callSettledLocked(k, amqp.Released{}, discardAnswer)
		}
	}
}

// A requestName identifies a request within one connection.
type requestName struct{ node, id string }

func nameOf(node string, id amqp.Raw) requestName {
	r := amqp.NewReader(id)
	return requestName{node, amqp.IDText(r.Value())}
}

// awaitLocked makes the handler of a request wait for its response instead of its outcome.
// Without a link for responses the outcome counts.
func (c *conn) awaitLocked(k *pendingDelivery) {
	m, err := amqp.ParseMessage(k.delivery.Payload)
	if err != nil {
		return
	}
	k.to = returnAddressOf(&m)
	name := nameOf(k.link.requests, k.to.messageID)
	if name.id == "" || c.requests[name] != nil || len(c.requests) >= c.cfg.MaxPending || k.link.replyLinkLocked(k.to.replyTo) == nil {
		return
	}
	if c.requests == nil {
		c.requests = make(map[requestName]*pendingDelivery)
	}
	k.awaits, k.responds = true, true
	c.requests[name] = k
}

// forgetRequestLocked drops a request that gets no response, or whose handler is gone.
func (c *conn) forgetRequestLocked(k *pendingDelivery) {
	if k.awaits {
		k.awaits = false
		delete(c.requests, nameOf(k.link.requests, k.to.messageID))
	}
}

// forgetRequestsLocked drops the requests of a link.
func (c *conn) forgetRequestsLocked(l *link) {
	if l.requests == "" {
		return
	}
	for _, k := range c.requests {
		if k.link == l {
			c.forgetRequestLocked(k)
		}
	}
}

// responseLocked handles a response of upstream. The response waits until the handler of its
// request, if there is one, lets it pass or replaces it.
func (l *link) responseLocked(h *half, t amqp.Transfer, d *Delivery) {
	c := h.s.c
	d.Payload = c.names.response(d.Payload)
	var k *pendingDelivery
	var res response
	if m, err := amqp.ParseMessage(d.Payload); err == nil {
		if r, ok := amqp.ListField(m.Properties, amqp.PropertyCorrelationID); ok {
			k = c.requests[nameOf(l.reply.node, r.Raw())]
			res = readResponse(&m)
		}
	}
	switch {
	case k == nil && l.watcher != nil:
		l.deliverLocked(h, t, *d)
		return
	case k == nil:
		h.passLocked(&entry{link: l, transfer: t, payload: d.Payload})
		return
	}
	c.forgetRequestLocked(k)
	k.asked = true
	var outcome amqp.DeliveryState = amqp.Accepted{}
	if !res.succeeded() {
		outcome = &amqp.Rejected{Error: res.refusal()}
	}
	c.responding++
	waiting := &pendingDelivery{half: h, link: l, in: t.DeliveryID, delivery: d, waits: true}
	h.passLocked(&entry{link: l, transfer: t, payload: d.Payload, pending: waiting})
	c.callSettledLocked(k, outcome, AnswerFunc(func(e *amqp.Error) {
		if e != nil {
			d.Payload = refusedAlike(e).encode(&k.to)
		}
		c.mu.Lock()
		c.responding--
		c.mu.Unlock()
		waiting.Resume(nil)
	}))
}

// Statuses of responses, as in HTTP.
const (
	statusAccepted       = 202
	statusBadRequest     = 400
	statusUnauthorized   = 401
	statusForbidden      = 403
	statusNotFound       = 404
	statusTimeout        = 408
	statusInternal       = 500
	statusNotImplemented = 501
	statusServerBusy     = 503
)

// Conditions that Service Bus adds to those of AMQP.
const (
	condArgumentError  amqp.Symbol = "com.microsoft:argument-error"
	condAuthFailed     amqp.Symbol = "com.microsoft:auth-failed"
	condServerBusy     amqp.Symbol = "com.microsoft:server-busy"
	condEntityDisabled amqp.Symbol = "com.microsoft:entity-disabled"
	condTimeout        amqp.Symbol = "com.microsoft:timeout"
)

// A returnAddress has the fields of a request that its response needs.
type returnAddress struct {
	messageID amqp.Raw // as the client encoded it, nil = none
	replyTo   string
}

// returnAddressOf copies the fields, so that the result shares no memory with the request.
func returnAddressOf(m *amqp.Message) (to returnAddress) {
	if r, ok := amqp.ListField(m.Properties, amqp.PropertyMessageID); ok {
		to.messageID = append(amqp.Raw(nil), r.Raw()...)
	}
	if r, ok := amqp.ListField(m.Properties, amqp.PropertyReplyTo); ok {
		to.replyTo = r.String()
	}
	return to
}

// A response answers a request on $cbs or another management node.
type response struct {
	status      int32
	description string
	condition   amqp.Symbol // of a failure, "" = none
}

// encode builds the message that returns res to the requester.
func (res response) encode(to *returnAddress) []byte {
	return amqp.Answer{
		To: to.replyTo, CorrelationID: to.messageID,
		Status: res.status, Description: res.description, Condition: res.condition,
	}.Append(make([]byte, 0, 320))
}

// readResponse reads a response, except for its correlation-id.
func readResponse(m *amqp.Message) response {
	a := amqp.ReadAnswer(m)
	return response{a.Status, a.Description, a.Condition}
}

// failure returns the response to a well-formed request that fails.
func failure(status int32, condition amqp.Symbol, format string, args ...any) response {
	return response{status: status, condition: condition, description: printable(fmt.Sprintf(format, args...))}
}

// printable turns any text into a valid AMQP string.
func printable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "?")
}

// succeeded reports whether a token is in effect.
func (res response) succeeded() bool { return res.status >= 200 && res.status < 300 }

// refusal returns the error with which upstream would have refused a link that lacks the refused
// token.
func (res response) refusal() *amqp.Error {
	e := &amqp.Error{Condition: res.condition, Description: printable(res.description)}
	switch {
	case res.status == statusUnauthorized:
		e.Condition = amqp.ErrCondUnauthorizedAccess // on links there is no auth-failed
	case res.status == statusNotFound:
		e.Condition = amqp.ErrCondNotFound
	case e.Condition != "":
	case res.status == statusTimeout:
		e.Condition = condTimeout
	case res.status == statusServerBusy:
		e.Condition = condServerBusy
	default:
		e.Condition = amqp.ErrCondInternalError
	}
	return e
}

// refusedAlike is the inverse of refusal.
func refusedAlike(e *amqp.Error) response {
	res := response{status: statusInternal, condition: e.Condition, description: printable(e.Description)}
	switch e.Condition {
	case amqp.ErrCondUnauthorizedAccess:
		res.status = statusUnauthorized
	case amqp.ErrCondNotFound:
		res.status = statusNotFound
	case condTimeout:
		res.status = statusTimeout
	case condServerBusy:
		res.status = statusServerBusy
	case amqp.ErrCondResourceLimitExceeded, amqp.ErrCondLinkMessageSizeExceeded:
		res.status = statusForbidden
	case amqp.ErrCondNotAllowed, condArgumentError, condEntityDisabled, amqp.ErrCondDecodeError:
		res.status = statusBadRequest
	case amqp.ErrCondNotImplemented:
		res.status = statusNotImplemented
	}
	return res
}
