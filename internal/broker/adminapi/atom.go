// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rest"
)

// Options of a handler. The zero value is open to everybody.
type Options struct {
	// Authorizer decides who may do what. nil lets everybody do everything.
	Authorizer Authorizer
	// NotApplied gets what a client stated to no effect. nil drops it.
	NotApplied func(Unapplied)
}

// Unapplied is a setting that the service does not apply, since its element stands out of order in
// the request.
type Unapplied struct {
	Path            string // of the entity
	Element, Behind string // Behind is the element after which it came
	Client          string // its User-Agent
}

// New returns the administration API of the namespace that ns picks for a request.
func New(ns func(*http.Request) *broker.Namespace, o Options) http.Handler {
	return &handler{namespace: ns, authorizer: o.Authorizer, notApplied: o.NotApplied, started: time.Now().UTC()}
}

type handler struct {
	namespace  func(*http.Request) *broker.Namespace
	authorizer Authorizer
	notApplied func(Unapplied)
	started    time.Time // what namespaces give as the time of their making
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := parseTarget(r.URL.EscapedPath())
	c := &call{
		w:          w,
		r:          r,
		ns:         space{h.namespace(r), r.Host},
		at:         location{r, t},
		gate:       gate{h.authorizer, r, t},
		notApplied: h.notApplied,
		started:    h.started,
		target:     t,
		version:    r.URL.Query().Get("api-version"),
	}
	rest.Identify(w.Header())
	c.tag()
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
	ns         space
	at         location
	gate       gate
	notApplied func(Unapplied)
	started    time.Time
	target     address.Target
	version    string // api-version; versions are dates, so they compare as strings
}

// serve answers the request, or returns why not.
func (c *call) serve() error {
	if c.ofMessages() {
		if err := c.gate.allow(Read, ""); err != nil {
			return err
		}
		return c.invalidVerb()
	}
	switch c.r.Method {
	case http.MethodGet:
		err := c.get()
		if _, exists := c.changed(); errors.Is(err, broker.ErrEntityNotFound) && !exists {
			c.writePublicServices(publicServicesList)
			return nil
		}
		return err
	case http.MethodPut:
		return c.put()
	case http.MethodDelete:
		return c.delete()
	}
	return c.invalidVerb()
}

// changed returns when the queue or topic was changed that the path leads to, or below. ok is false
// where there is none.
func (c *call) changed() (at time.Time, ok bool) {
	if c.ns.Namespace == nil { // see WritePublicServices
		return at, false
	}
	name := c.target.Name
	if part, err := address.OfPath(c.target.Path); err == nil {
		name = part.Name
	}
	return c.ns.Changed(name)
}

// ofMessages reports whether the path leads to a part of an entity that has messages alone, such as
// its dead-letter queue.
func (c *call) ofMessages() bool {
	at, err := address.OfPath(c.target.Path)
	if err != nil || at.SubQueue == address.Main && at.Node == address.Messages {
		return false
	}
	_, exists := c.ns.Changed(at.Name)
	return exists
}

func (c *call) get() error {
	switch c.target.Kind {
	case address.Root: // the public services, for everybody
		return broker.ErrEntityNotFound
	case address.NamespaceInfo:
		return c.getNamespace()
	case address.QueueList:
		return queues.answerList(c)
	case address.TopicList:
		return topics.answerList(c)
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
	denied := c.gate.allow(Read, "")
	if q, err := c.ns.QueueInfo(c.target.Name); err == nil {
		if denied != nil {
			return denied
		}
		return c.writeEntry(http.StatusOK, queues.entry(c, q, nil))
	}
	t, err := c.ns.TopicInfo(c.target.Name)
	switch {
	case err == nil && denied == nil:
		return c.writeEntry(http.StatusOK, topics.entry(c, t, nil))
	case denied != nil && (err == nil || !lacksClaim(denied)):
		return denied
	}
	return err
}

func (c *call) put() error {
	switch c.target.Kind {
	case address.EntityTarget, address.Root:
		return c.putEntity()
	case address.SubscriptionTarget:
		return c.putSubscription()
	case address.RuleTarget:
		return c.putRule()
	}
	return c.invalidVerb()
}

// putEntity makes or changes what the body describes, a queue or a topic.
func (c *call) putEntity() error {
	if err := c.gate.allow(Write, ""); err != nil {
		return err
	}
	d, err := c.description("QueueDescription", "TopicDescription")
	if err != nil {
		return err
	}
	put, noun := topics.put, topics.noun
	if d.name.Local == "QueueDescription" {
		put, noun = queues.put, queues.noun
	}
	if c.target.Kind == address.Root {
		return refusef(http.StatusUnauthorized, "Generic: Provided resource identifier '/namespaces/%s/%ss/' is invalid.", c.ns.name(), strings.ToLower(noun))
	}
	return put(c, d)
}

// updates reports whether a PUT changes an existing entity. Clients send `*`; there
// are no entity tags that it could be compared with.
func (c *call) updates() bool { return c.r.Header.Get("If-Match") != "" }

func (c *call) delete() error {
	switch t := c.target; t.Kind {
	case address.EntityTarget, address.Root:
		if err := c.gate.allow(Delete, ""); err != nil {
			return err
		}
		if _, err := c.ns.TopicInfo(t.Name); err == nil {
			return c.ns.DeleteTopic(t.Name)
		}
		return c.ns.DeleteQueue(t.Name)
	case address.SubscriptionTarget:
		if err := c.gate.allow(Delete, "DeleteSubscription"); err != nil {
			return err
		}
		return c.ns.DeleteSubscription(t.Name, t.Subscription)
	case address.RuleTarget:
		if err := c.gate.allow(Delete, "DeleteRule"); err != nil {
			return err
		}
		return c.ns.DeleteRule(t.Name, t.Subscription, t.Rule)
	}
	return c.invalidVerb()
}
