// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
)

// $management and $cbs are asked in messages: a link takes requests, another
// one of the same connection returns the responses. A request names the link
// for its response in reply-to: by the target address of that link (Go, .NET,
// Python) or by its name (JavaScript).

const managementCredit, cbsCredit = 1000, 100 // requests that a link may have unanswered, as in the service

// An answerer works out the response to one request. It must not wait.
type answerer func(*request) response

// requests takes the requests of one link.
type requests struct {
	conn     *conn
	link     *server.SinkLink
	node     address.Address
	answer   answerer
	detached func() // called at the end, may be nil
}

func newRequests(c *conn, l *server.SinkLink, node address.Address, credit uint32, answer answerer) *requests {
	l.Reply.Credit, l.Reply.SettleNow = credit, true
	return &requests{conn: c, link: l, node: node.Folded(), answer: func(req *request) response {
		if e := rights.AmbiguousRequest(&req.message); e != nil {
			return refused(e)
		}
		return answer(req)
	}}
}

// Deliver hands the request to the link that returns the response. A request
// that cannot be answered is rejected, because its client would wait for ever.
func (r *requests) Deliver(d *server.Delivery) {
	req, err := readRequest(d.Payload)
	if err == nil {
		if name, named := req.property("associated-link-name"); named {
			r.conn.peer.Touch(name)
		}
		req.txn, err = transactionOf(d.State)
	}
	if err == nil {
		to := r.conn.replies.find(req.replyTo, r.node, r.link.Session())
		if to == nil {
			err = amqp.Errorf(amqp.ErrCondNotFound, "No link of this connection returns the responses to '%.260s'.", req.replyTo)
		} else {
			err = to.accept(job{d, r, req})
		}
	}
	if err != nil {
		r.settle(d, &amqp.Rejected{Error: r.conn.ns.entities.tracked(err, r.node.Entity())})
	}
}

// Detached forgets the link. Requests it has delivered are still answered.
func (r *requests) Detached(*amqp.Error) {
	if r.detached != nil {
		r.detached()
	}
}

func (r *requests) settle(d *server.Delivery, st amqp.DeliveryState) {
	if !d.Settled {
		r.link.Settle(d, st)
	}
}

// replies are the links of one connection that return responses, by the nodes
// that they are attached to.
type replies map[address.Address][]*responder

// find returns the link that a response goes to, nil if there is none. One in
// the session of the request is preferred. A client that names none that exists
// gets the response on the only one in its session.
func (rs replies) find(replyTo string, node address.Address, session *server.Session) *responder {
	var named, near *responder
	neighbours := 0
	for _, r := range rs[node] {
		isNear := r.link.Session() == session
		if r.called(replyTo) {
			if isNear {
				return r
			}
			named = r
		}
		if isNear {
			near = r
			neighbours++
		}
	}
	if named == nil && neighbours == 1 {
		return near
	}
	return named
}

func (rs replies) add(r *responder) { rs[r.node] = append(rs[r.node], r) }

func (rs replies) remove(r *responder) {
	if rs[r.node] = slices.DeleteFunc(rs[r.node], func(o *responder) bool { return o == r }); len(rs[r.node]) == 0 {
		delete(rs, r.node)
	}
}
