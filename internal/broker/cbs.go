// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/amqpserver"
)

// A connection has one pair of $cbs links; Go takes a refused second one as the
// sign that the first is stuck, and starts over with a new connection.

func (c *conn) attachCBSRequests(l *amqpserver.SinkLink) (amqpserver.Sink, *amqp.Error) {
	if c.cbs.sink {
		return nil, errSecondCBS()
	}
	c.cbs.sink = true
	r := newRequests(c, l, address{cbs: true}, c.b.putToken)
	r.detached = func() { c.cbs.sink = false }
	return r, nil
}

func (c *conn) attachCBSReplies(l *amqpserver.SourceLink) (amqpserver.Source, *amqp.Error) {
	if c.cbs.source {
		return nil, errSecondCBS()
	}
	c.cbs.source = true
	r := newResponder(c, l, address{cbs: true})
	r.detached = func() { c.cbs.source = false }
	return r, nil
}

func errSecondCBS() *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotAllowed, "A link to '$cbs' is open on this connection already.")
}

// putToken answers a request on $cbs. Every token is good: whoever can reach
// this broker may use it. The token is not read, so nothing in it can do harm.
// The audience is: here the service tells clients that an entity does not exist.
func (b *Broker) putToken(req *request) response {
	if req.operation != "put-token" {
		return unsupported(req.operation)
	}
	audience, ok := req.property("name")
	if !ok || audience == "" {
		return badRequest("The put-token request names no audience.")
	}
	if a := parseAddress(audience); a.name != "" {
		if _, err := b.look(a.name); err != nil {
			return response{status: statusNotFound, condition: err.Condition, description: err.Description}
		}
	}
	return response{status: statusAccepted, description: "Accepted"}
}
