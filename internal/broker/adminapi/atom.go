// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"net/http"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
)

// Options of a handler. The zero value is open to everybody.
type Options struct {
	// Authorizer decides who may do what. nil lets everybody do everything.
	Authorizer Authorizer
}

// New returns the administration API of the namespace that ns picks for a
// request. A request for which ns returns nil is answered with 404.
func New(ns func(*http.Request) *broker.Namespace, o Options) http.Handler {
	return &handler{namespace: ns, authorizer: o.Authorizer, started: time.Now().UTC()}
}

type handler struct {
	namespace  func(*http.Request) *broker.Namespace
	authorizer Authorizer
	started    time.Time // what namespaces give as the time of their making
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := parseTarget(r.URL.EscapedPath())
	c := &call{
		w: w, r: r, ns: h.namespace(r), authorizer: h.authorizer, started: h.started,
		target: t, version: r.URL.Query().Get("api-version"),
	}
	if err == nil {
		err = c.serve()
	}
	if err != nil {
		c.refuse(err)
	}
}

// A call is one request on its way through the API.
type call struct {
	w          http.ResponseWriter
	r          *http.Request
	ns         *broker.Namespace
	authorizer Authorizer
	started    time.Time
	target     address.Target
	version    string // api-version; versions are dates, so they compare as strings
}

// serve answers the request, or returns why not.
func (c *call) serve() error {
	if c.ns == nil {
		return notFound("The namespace '%s' could not be found.", c.r.Host)
	}
	switch c.r.Method {
	case http.MethodGet:
		return c.get()
	case http.MethodPut:
		return c.put()
	case http.MethodDelete:
		return c.delete()
	}
	c.w.Header().Set("Allow", "GET, PUT, DELETE")
	return refusef(http.StatusMethodNotAllowed, "The method %.20s is not supported.", c.r.Method)
}

func (c *call) get() error {
	switch c.target.Kind {
	case address.NamespaceInfo:
		return c.getNamespace()
	case address.QueueList:
		return c.listQueues()
	case address.TopicList:
		return c.listTopics()
	case address.SubscriptionList:
		return c.listSubscriptions()
	case address.RuleList:
		return c.listRules()
	case address.SubscriptionTarget:
		return c.getSubscription()
	case address.RuleTarget:
		return c.getRule()
	}
	return c.getEntity()
}

// getEntity answers for a name that may be that of a queue, of a topic, or of
// nothing. The latter is no secret that takes a right to hear.
func (c *call) getEntity() error {
	denied := c.allow(Read, "")
	if q, err := c.ns.QueueInfo(c.target.Name); err == nil {
		if denied != nil {
			return denied
		}
		return c.writeEntry(http.StatusOK, c.queueEntry(q))
	}
	if t, err := c.ns.TopicInfo(c.target.Name); err == nil {
		if denied != nil {
			return denied
		}
		return c.writeEntry(http.StatusOK, c.topicEntry(t))
	}
	if denied != nil && !lacksClaim(denied) {
		return denied
	}
	return c.writeFeed(publicServices, page{})
}

func (c *call) put() error {
	switch c.target.Kind {
	case address.EntityTarget:
		return c.putEntity()
	case address.SubscriptionTarget:
		return c.putSubscription()
	case address.RuleTarget, address.RuleList: // a client that leaves the name of a rule out ends up at the list
		return c.putRule()
	}
	return refusef(http.StatusMethodNotAllowed, "'%.300s' cannot be written to.", c.target.Path)
}

// putEntity makes or changes what the body describes, a queue or a topic.
func (c *call) putEntity() error {
	if err := c.allow(Write, ""); err != nil {
		return err
	}
	d, err := c.description("QueueDescription", "TopicDescription")
	if err != nil {
		return err
	}
	if d.name.Local == "QueueDescription" {
		return c.putQueue(d)
	}
	return c.putTopic(d)
}

// updates reports whether a PUT changes an existing entity. Clients send `*`; there
// are no entity tags that it could be compared with.
func (c *call) updates() bool { return c.r.Header.Get("If-Match") != "" }

func (c *call) delete() error {
	switch t := c.target; t.Kind {
	case address.EntityTarget:
		if err := c.allow(Delete, ""); err != nil {
			return err
		}
		if _, err := c.ns.TopicInfo(t.Name); err == nil {
			return c.ns.DeleteTopic(t.Name)
		}
		return c.ns.DeleteQueue(t.Name)
	case address.SubscriptionTarget:
		if err := c.allow(Delete, "DeleteSubscription"); err != nil {
			return err
		}
		return c.ns.DeleteSubscription(t.Name, t.Subscription)
	case address.RuleTarget:
		if err := c.allow(Delete, "DeleteRule"); err != nil {
			return err
		}
		return c.ns.DeleteRule(t.Name, t.Subscription, t.Rule)
	}
	return refusef(http.StatusMethodNotAllowed, "'%.300s' cannot be deleted.", c.target.Path)
}
