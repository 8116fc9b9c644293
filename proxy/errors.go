// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/sas"
)

// Errors of a send. The endpoints branch on these only; classify maps those of links to them.
var (
	errBadRequest   = rest.ErrBadRequest                             // a rest.RequestError, or the broker found the message invalid
	errUnauthorized = errors.New("unauthorized")                     // our credentials lack the right to the entity
	errDenied       = errors.New("denied")                           // the client's credentials are not good for the endpoint; wraps a sas.Refusal
	errForbidden    = errors.New("entity is disabled")               //
	errQuota        = errors.New("entity is full")                   //
	errTooLarge     = rest.ErrTooLarge                               // exceeds the link's, the entity's or MaxBodySize's limit
	errSlowBody     = errors.New("request body did not come")        // in time
	errGone         = errors.New("entity does not exist")            //
	errNowhere      = errors.New("no entity has such a path")        //
	errBusy         = errors.New("too many sends in flight")         // no place became free within SendTimeout
	errUnknown      = errors.New("entity's settings are not known")  // the app left, or SendTimeout passed, first
	errUpstream     = errors.New("namespace cannot be reached")      // over HTTP
	errNoAnswer     = errors.New("namespace does not answer")        // over HTTP
	errThrottled    = errors.New("broker is busy")                   //
	errReleased     = errors.New("broker gave the message back")     //
	errTimeout      = errors.New("broker did not answer in time")    // the message may be in the queue
	errConnection   = errors.New("connection to the broker is lost") // the message may be in the queue
	errClosed       = errors.New("proxy is closed")                  //
	errCompanion    = errors.New("companion was not written")        // the message may be in the queue
)

// failures maps each error to the answers of both endpoints. An answer has the status of the
// Service Bus REST API, the seconds after which a retry may help (0 = it does not help), and the
// AMQP condition. By the condition the SDKs decide whether to retry. An answer also has a sentence,
// in which %s is the entity. If the sentence is empty, the error's own applies.
//
// The SDKs of every language retry server-busy and timeout; not-allowed and message-size-exceeded
// end the send in each. Errors that only the REST endpoint meets have no condition.
var failures = []struct {
	err        error
	status     int
	retryAfter int
	condition  amqp.Symbol
	sentence   string
}{
	{errBadRequest, http.StatusBadRequest, 0, amqp.ErrCondNotAllowed, ""},
	{errUnauthorized, http.StatusUnauthorized, 0, amqp.ErrCondUnauthorizedAccess, "The credentials of the proxy do not have the right to send to '%s'."},
	{errDenied, http.StatusUnauthorized, 0, "", ""},
	{errForbidden, http.StatusForbidden, 0, condEntityDisabled, "The messaging entity '%s' is disabled for sends."},
	{errQuota, http.StatusForbidden, 0, amqp.ErrCondResourceLimitExceeded, "The messaging entity '%s' has reached its size quota."},
	{errTooLarge, http.StatusForbidden, 0, amqp.ErrCondLinkMessageSizeExceeded, "The message is larger than '%s' accepts."},
	{errSlowBody, http.StatusRequestTimeout, 1, "", "The body of the request did not come in time."},
	{errGone, http.StatusGone, 0, amqp.ErrCondNotFound, "The messaging entity '%s' could not be found."},
	{errNowhere, http.StatusNotFound, 0, "", "The messaging entity could not be found: names have no such path."},
	{errUpstream, http.StatusBadGateway, 1, "", "The namespace could not be reached; try again."},
	{errNoAnswer, http.StatusGatewayTimeout, 1, "", "The namespace has not answered in time; try again."},
	{errCompanion, http.StatusServiceUnavailable, 1, condServerBusy, "The deadline of the message for '%s' could not be written to the monitor queue, or to the Redis that stands in for it; send it again."},
	{errBusy, http.StatusServiceUnavailable, 1, condServerBusy, "Too many requests are in flight; try again."},
	{errUnknown, http.StatusServiceUnavailable, 1, condServerBusy, "The settings of '%s' are not known yet; send the message again."},
	{errThrottled, http.StatusServiceUnavailable, 10, condServerBusy, "The broker is busy; send it again."}, // 10 s: its own advice when it throttles
	{errReleased, http.StatusServiceUnavailable, 1, condServerBusy, "The broker gave the message for '%s' back; send it again."},
	{errTimeout, http.StatusServiceUnavailable, 1, condTimeout, "The broker did not accept the message for '%s' in time; send it again."},
	{errConnection, http.StatusServiceUnavailable, 1, condTimeout, "The connection to the broker was lost; send it again."},
	{errClosed, http.StatusServiceUnavailable, 1, condServerBusy, "The proxy is stopping; send it again."},
}

// Conditions that Service Bus adds to those of AMQP.
const (
	condServerBusy     amqp.Symbol = "com.microsoft:server-busy"
	condTimeout        amqp.Symbol = "com.microsoft:timeout"
	condEntityDisabled amqp.Symbol = "com.microsoft:entity-disabled"
)

// ofBatch adds to err which message of the batch caused it.
func ofBatch(err error, i, n int) error {
	var re *rest.RequestError
	if n > 1 && errors.As(err, &re) {
		return rest.BadRequest("Message %d of %d: %s", i+1, n, re.Sentence)
	}
	return err
}

// answer returns the endpoint's answer for err: the namespace's own, or that of the matching row
// of failures.
func answer(err error, entity string) (status, retryAfter int, sentence string) {
	var theirs *namespaceAnswer
	if errors.As(err, &theirs) {
		if theirs.status >= http.StatusInternalServerError {
			retryAfter = 1
		}
		return theirs.status, retryAfter, theirs.Error()
	}
	for _, f := range failures {
		if !errors.Is(err, f.err) {
			continue
		}
		if f.sentence == "" {
			return f.status, f.retryAfter, sentenceOf(err)
		}
		return f.status, f.retryAfter, insert(f.sentence, entity)
	}
	// Any other error of a link or the namespace is no fault of the message.
	return http.StatusServiceUnavailable, 1, insert("The message for '%s' could not be sent; send it again.", entity)
}

// refusal returns the AMQP error for a client whose send failed with err.
func refusal(err error, entity string) *amqp.Error {
	_, _, sentence := answer(err, entity)
	condition := condServerBusy // which the SDKs of all languages retry
	for _, f := range failures {
		if f.condition != "" && errors.Is(err, f.err) {
			condition = f.condition
			break
		}
	}
	return &amqp.Error{Condition: condition, Description: sentence}
}

// outcomeError maps the outcome of a transfer to an error of the send. It is nil when the broker
// has accepted the transfer, also as part of a transaction.
func outcomeError(outcome amqp.DeliveryState) error {
	if part, ok := outcome.(*amqp.TransactionalState); ok {
		outcome = part.Outcome
	}
	switch outcome := outcome.(type) {
	case nil, amqp.Accepted: // nil: it was sent settled
		return nil
	case *amqp.Rejected:
		err := &goamqp.Error{Condition: goamqp.ErrCondInternalError}
		if e := outcome.Error; e != nil {
			err.Condition, err.Description = goamqp.ErrCond(e.Condition), e.Description
		}
		return classify(err)
	}
	return errReleased
}

// sentenceOf returns the sentence of a rest.RequestError, of a refused token, or of the broker's
// refusal.
func sentenceOf(err error) string {
	var denied *sas.Refusal
	if errors.As(err, &denied) {
		return denied.Error()
	}
	var re *rest.RequestError
	if errors.As(err, &re) {
		return re.Sentence
	}
	var remote *goamqp.Error
	if errors.As(err, &remote) && remote.Description != "" {
		return "The broker refused the message: " + remote.Description
	}
	return "The broker refused the message."
}

// conditions maps the AMQP conditions of a refused transfer or link to errors of a send.
var conditions = map[goamqp.ErrCond]error{
	goamqp.ErrCondNotFound:              errGone,
	goamqp.ErrCondResourceDeleted:       errGone,
	goamqp.ErrCondUnauthorizedAccess:    errUnauthorized,
	goamqp.ErrCondResourceLimitExceeded: errQuota,
	goamqp.ErrCondMessageSizeExceeded:   errTooLarge,
	"com.microsoft:entity-disabled":     errForbidden,

	"com.microsoft:server-busy":         errThrottled,
	"com.microsoft:timeout":             errTimeout,
	"com.microsoft:operation-cancelled": errTimeout,
	goamqp.ErrCondTransferLimitExceeded: errThrottled, // go-amqp returns it when no credit came before the context ended

	goamqp.ErrCondConnectionForced: errConnection,
	goamqp.ErrCondDetachForced:     errConnection,

	goamqp.ErrCondNotAllowed:              errBadRequest, // for example: no session-id for an entity with sessions
	goamqp.ErrCondInvalidField:            errBadRequest,
	goamqp.ErrCondDecodeError:             errBadRequest,
	goamqp.ErrCondPreconditionFailed:      errBadRequest,
	"com.microsoft:argument-error":        errBadRequest,
	"com.microsoft:argument-out-of-range": errBadRequest,
}

// classify returns the sentinel for an error of a link or the broker. If the connection ended, its
// condition says nothing of the send. Any other error is returned as it is.
func classify(err error) error {
	if err == nil {
		return nil
	}
	known := conditions[goamqp.ErrCond(link.Condition(err))]
	switch {
	case errors.Is(err, link.ErrClosed):
		known = errClosed
	case errors.Is(err, link.ErrTooLarge):
		known = errTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		known = errTimeout
	case link.Lost(err):
		known = errConnection
	case link.Unauthorized(err):
		known = errUnauthorized
	}
	if known == nil {
		return err
	}
	return fmt.Errorf("%w: %w", known, err)
}

// insert fills the entity into a sentence of failures.
func insert(sentence, entity string) string {
	return strings.ReplaceAll(sentence, "%s", entity)
}
