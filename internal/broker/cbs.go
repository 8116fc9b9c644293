// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"math"
	"net"
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/servicebus/address"
)

// A connection has one pair of $cbs links; Go takes a refused second one as the
// sign that the first is stuck, and starts over with a new connection.

func (c *conn) attachCBSRequests(l *server.SinkLink) (server.Sink, *amqp.Error) {
	if c.cbs.sink {
		return nil, errSecondCBS()
	}
	c.cbs.sink = true
	l.Reply.Resident, l.Reply.MaxMessageSize = true, math.MaxUint64 // as in the service
	r := newRequests(c, l, address.Address{Node: address.CBS}, cbsCredit, c.putToken)
	r.detached = func() { c.cbs.sink = false }
	return r, nil
}

func (c *conn) attachCBSReplies(l *server.SourceLink) (server.Source, *amqp.Error) {
	if c.cbs.source {
		return nil, errSecondCBS()
	}
	c.cbs.source = true
	l.Reply.Resident = true
	r := newResponder(c, l, address.Address{Node: address.CBS})
	r.detached = func() { c.cbs.source = false }
	return r, nil
}

func errSecondCBS() *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotAllowed, "A link to '$cbs' is open on this connection already.")
}

// putToken answers a request on $cbs. Without keys every token is good, and not
// read, but for the namespace that it may name. The audience is read: here a client
// learns that an entity does not exist, once its token shows that it may know.
func (c *conn) putToken(req *request) response {
	if req.operation != "put-token" {
		return unsupported(req.operation)
	}
	audience, ok := req.property("name")
	if !ok || audience == "" {
		return badRequest("The put-token request names no audience.")
	}
	a := parseAddress(audience)
	token := req.text()
	ns := c.access.namespaceBy(token)
	var proven grant
	if c.b.Secured() {
		var err error
		kind, _ := req.property("type")
		if proven, err = ns.keys.prove(token, strings.EqualFold(kind, tokenSAS) || isSAS(token), a.String()); err != nil {
			return refused(&amqp.Error{Condition: condAuthFailed, Description: err.Error()})
		}
		c.peer.Admit() // whether or not there is what the token is for
	}
	if a.Entity() != "" {
		if _, err := ns.entities.lookup(a.Entity()); err != nil {
			return refused(c.unknown(err, audience))
		}
	}
	if c.b.Secured() {
		if err := c.access.put(a.String(), proven); err != nil {
			return refused(err)
		}
	}
	return response{status: statusAccepted, description: "Accepted"}
}

// unknown names what does not exist by its URL, as the service does on $cbs; the JavaScript SDK's
// live tests of entities that do not exist look for it. The host is that of the audience, or else
// the one that the client opened; a port is no part of the name of a namespace.
func (c *conn) unknown(err *amqp.Error, audience string) *amqp.Error {
	if err.Condition != amqp.ErrCondNotFound {
		return err
	}
	host, path := c.peer.Hostname(), audience
	if _, rest, isURL := strings.Cut(audience, "://"); isURL {
		host, path, _ = strings.Cut(rest, "/")
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	path = strings.Trim(path, "/")
	return tracked(notFound("sb://"+host+"/"+path), host+":"+path)
}

// tokenSAS is the type of token that a shared access signature is. What has
// another is a JSON Web Token, unless it looks like a signature: Python says jwt
// of those, too.
const tokenSAS = "servicebus.windows.net:sastoken"

// text returns the body of a request that is a string, or the bytes of one
// (Python); "" for any other.
func (req *request) text() string {
	r, ok := req.message.Value()
	if !ok {
		return ""
	}
	probe := r
	if s := r.String(); r.Err() == nil {
		return s
	}
	if b := probe.Binary(); probe.Err() == nil {
		return string(b)
	}
	return ""
}
