// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
)

// A refusal is an answer that is no success.
type refusal struct {
	status int
	detail string
	cause  error // may be nil
}

func (e *refusal) Error() string { return e.detail }
func (e *refusal) Unwrap() error { return e.cause }

func refusef(status int, format string, args ...any) error {
	return &refusal{status: status, detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) error {
	return refusef(http.StatusBadRequest, "SubCode=40000. Bad Request. "+format, args...)
}

// knowMore stands behind most sentences of the service.
const knowMore = " To know more visit https://aka.ms/sbResourceMgrExceptions."

// The texts of the service about a queue or topic, and about a path that it takes for one.
const (
	noOperation  = "SubCode=40400. Not Found. The Operation doesn't exist." + knowMore + " ."
	notHosted    = "No service is hosted at the specified address."
	noTopicToPut = "The incoming request is not recognized as a namespace policy put request." + knowMore
	conflict     = "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state." + knowMore + " ."
)

// invalidVerb refuses a request for what cannot be asked for at its path.
func (c *call) invalidVerb() error {
	return &refusal{status: http.StatusBadRequest, detail: rest.InvalidVerb(c.r.Method).Error()}
}

// asRefusal turns what the namespace says into what the service says.
func (c *call) asRefusal(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	r := &refusal{cause: err}
	below := c.target.Subscription != ""
	switch {
	case errors.Is(err, broker.ErrEntityNotFound):
		_, topicExists := c.changed()
		r.status = http.StatusNotFound
		switch deletes := c.r.Method == http.MethodDelete; {
		case deletes && (!below || !topicExists):
			r.detail = notHosted
		case !below:
			r.detail = noOperation
		case !topicExists:
			r.detail = noTopicToPut
		case deletes:
			r.detail = "The messaging entity '" + c.entityName() + "' could not be found." + knowMore
		default:
			r.detail = "Entity '" + c.entityName() + "' was not found." + knowMore
		}
	case errors.Is(err, broker.ErrEntityExists) && below:
		r.status, r.detail = http.StatusConflict, "The messaging entity '"+c.entityName()+"' already exists."+knowMore
	case errors.Is(err, broker.ErrEntityExists):
		r.status, r.detail = http.StatusConflict, conflict
	case errors.Is(err, broker.ErrInvalidConfig):
		r.status, r.detail = http.StatusBadRequest, "SubCode=40000. Bad Request. "+c.at.entityURL()+" cannot be like this: "+reasons(err)+"."
	case errors.Is(err, broker.ErrTooManyEntities):
		r.status, r.detail = http.StatusForbidden, "SubCode=40300. Forbidden. "+c.at.entityURL()+" has no room: the namespace, topic or subscription is full."
	case errors.Is(err, queue.ErrNoRoom):
		r.status, r.detail = http.StatusForbidden, "SubCode=40300. Forbidden. "+c.at.entityURL()+" was not changed: the disk of the broker is full."
	case errors.Is(err, queue.ErrNotStored):
		r.status, r.detail = http.StatusServiceUnavailable, "SubCode=50300. Service Unavailable. The broker cannot write to its disk."
	case errors.Is(err, broker.ErrClosed):
		r.status, r.detail = http.StatusServiceUnavailable, "SubCode=50300. Service Unavailable. The namespace is shutting down."
	default:
		r.status, r.detail = http.StatusInternalServerError, "SubCode=50000. Internal Error. "+c.at.entityURL()+" could not be served: "+err.Error()+"."
	}
	return r
}

// entityName is what the service calls a subscription or a rule.
func (c *call) entityName() string {
	name := c.ns.name() + ":Topic:" + c.target.Name + "|" + c.target.Subscription
	if c.target.Rule != "" {
		name += "|" + c.target.Rule
	}
	return name
}

// reasons are what is wrong, without the words that say that something is.
func reasons(err error) string {
	text := strings.ReplaceAll(err.Error(), broker.ErrInvalidConfig.Error()+": ", "")
	return strings.ReplaceAll(text, "\n", "; ")
}

// refuse answers with an error. A client without a right does not learn when an entity was changed.
func (c *call) refuse(err error) {
	r := c.asRefusal(err)
	if r.status == http.StatusUnauthorized {
		c.w.Header().Del("ETag")
	}
	rest.Refuse(c.w, c.r, r.status, 0, r.detail)
}
