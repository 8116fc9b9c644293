// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/sas"
	"overdue/internal/servicebus/sdk"
)

// How a send can fail. The endpoints branch on these and on nothing
// else; classify finds them in what the SDK returns.
var (
	errBadRequest   = rest.ErrBadRequest                             // a rest.RequestError, or the broker refused the message for what it is
	errUnauthorized = errors.New("unauthorized")                     // our credentials do not hold for the entity
	errDenied       = errors.New("denied")                           // the client's do not hold for the endpoint; wraps a sas.Refusal
	errForbidden    = errors.New("entity is disabled")               //
	errQuota        = errors.New("entity is full")                   //
	errTooLarge     = rest.ErrTooLarge                               // for the link, the entity's settings or MaxBodySize
	errSlowBody     = errors.New("request body did not come")        // in time
	errGone         = errors.New("entity does not exist")            //
	errUnsupported  = errors.New("request is not relayed")           //
	errBusy         = errors.New("too many sends in flight")         // no free place within SendTimeout
	errUnknown      = errors.New("entity's settings are not known")  // yet, and the app has left or SendTimeout has passed
	errUpstream     = errors.New("namespace cannot be asked")        // over HTTP
	errNoAnswer     = errors.New("namespace does not answer")        // over HTTP
	errThrottled    = errors.New("broker is busy")                   //
	errReleased     = errors.New("broker gave the message back")     //
	errTimeout      = errors.New("broker did not answer in time")    // the message may be in the queue
	errConnection   = errors.New("connection to the broker is lost") // the message may be in the queue
	errClosed       = errors.New("proxy is closed")                  //
	errCompanion    = errors.New("companion was not written")        // the message may be in the queue
)

// failures is the one table: what went wrong, the status that the Service Bus REST API answers,
// after how many seconds a retry may help (0 = not as it stands), the condition for which the AMQP
// SDKs retry or do not, and the sentence. %s is the entity. An empty sentence is the error's own.
//
// server-busy and timeout are retried by the SDKs of every language; not-allowed and
// message-size-exceeded end the send in each. What only the REST endpoint can meet has none.
var failures = []struct {
	err        error
	status     int
	retryAfter int
	condition  amqp.Symbol
	sentence   string
}{
	{errBadRequest, http.StatusBadRequest, 0, amqp.ErrCondNotAllowed, ""},
	{errUnauthorized, http.StatusUnauthorized, 0, amqp.ErrCondUnauthorizedAccess, "The credentials of the proxy do not allow to send to '%s'."},
	{errDenied, http.StatusUnauthorized, 0, "", ""},
	{errForbidden, http.StatusForbidden, 0, condEntityDisabled, "The messaging entity '%s' is disabled for sends."},
	{errQuota, http.StatusForbidden, 0, amqp.ErrCondResourceLimitExceeded, "The messaging entity '%s' has reached its size quota."},
	{errTooLarge, http.StatusForbidden, 0, amqp.ErrCondLinkMessageSizeExceeded, "The message is larger than '%s' accepts."},
	{errSlowBody, http.StatusRequestTimeout, 1, "", "The body of the request did not come in time."},
	{errGone, http.StatusGone, 0, amqp.ErrCondNotFound, "The messaging entity '%s' could not be found."},
	{errUnsupported, http.StatusNotImplemented, 0, "", "The proxy takes POST /{entity}/messages only; send this request to the Service Bus namespace itself."},
	{errUpstream, http.StatusBadGateway, 1, "", "The namespace cannot be asked; try again."},
	{errNoAnswer, http.StatusGatewayTimeout, 1, "", "The namespace has not answered in time; try again."},
	{errCompanion, http.StatusServiceUnavailable, 1, condServerBusy, "The deadline of the message for '%s' could not be written to the monitor queue, or to the Redis that stands in for it; send it again."},
	{errBusy, http.StatusServiceUnavailable, 1, condServerBusy, "Too many requests are in flight; try again."},
	{errUnknown, http.StatusServiceUnavailable, 1, condServerBusy, "What holds for '%s' is not known yet; send it again."},
	{errThrottled, http.StatusServiceUnavailable, 10, condServerBusy, "The broker is busy; send it again."}, // 10 s: its own advice when it throttles
	{errReleased, http.StatusServiceUnavailable, 1, condServerBusy, "The broker gave the message for '%s' back; send it again."},
	{errTimeout, http.StatusServiceUnavailable, 1, condTimeout, "The broker did not accept the message for '%s' in time; send it again."},
	{errConnection, http.StatusServiceUnavailable, 1, condTimeout, "The connection to the broker was lost; send it again."},
	{errClosed, http.StatusServiceUnavailable, 1, condServerBusy, "The proxy is stopping; send it again."},
}

// The conditions of Service Bus that AMQP does not know.
const (
	condServerBusy     amqp.Symbol = "com.microsoft:server-busy"
	condTimeout        amqp.Symbol = "com.microsoft:timeout"
	condEntityDisabled amqp.Symbol = "com.microsoft:entity-disabled"
)

// ofBatch names the message of a batch that err is about.
func ofBatch(err error, i, n int) error {
	var re *rest.RequestError
	if n > 1 && errors.As(err, &re) {
		return rest.BadRequest("Message %d of %d: %s", i+1, n, re.Sentence)
	}
	return err
}

// answer is what the namespace says itself, or the row of the table for err: what an endpoint
// tells its client.
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
		switch f.sentence {
		case "":
			return f.status, f.retryAfter, sentenceOf(err)
		default:
			return f.status, f.retryAfter, insert(f.sentence, entity)
		}
	}
	// Whatever else the SDK or the namespace comes up with is no fault of the message.
	return http.StatusServiceUnavailable, 1, insert("The message for '%s' could not be sent; send it again.", entity)
}

// refusal is the AMQP error that a client gets for err.
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

// outcomeError is what the outcome of a transfer means for the send; nil when the broker has
// accepted it, be it as a part of a transaction.
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

// sentenceOf is the sentence of a rest.RequestError or of a refused token, or what the broker says
// in refusing.
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

// conditions maps what the broker says when it refuses a transfer or a link.
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
	goamqp.ErrCondTransferLimitExceeded: errThrottled, // go-amqp's word for: no credit came until the context ended

	goamqp.ErrCondConnectionForced: errConnection,
	goamqp.ErrCondDetachForced:     errConnection,

	goamqp.ErrCondNotAllowed:              errBadRequest, // no session-id for an entity with sessions, say
	goamqp.ErrCondInvalidField:            errBadRequest,
	goamqp.ErrCondDecodeError:             errBadRequest,
	goamqp.ErrCondPreconditionFailed:      errBadRequest,
	"com.microsoft:argument-error":        errBadRequest,
	"com.microsoft:argument-out-of-range": errBadRequest,
}

// classify finds the sentinel for what the SDK or the broker returned from a send. The SDK's own
// Error hides what it wraps, so its code decides where there is one; where the SDK passes an AMQP
// error on as it is, the condition does. An error that is none of these stays.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var sb *azservicebus.Error
	var remote *goamqp.Error
	switch {
	case errors.Is(err, sdk.ErrConnectionEnded):
		return fmt.Errorf("%w: %w", errConnection, err)
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return fmt.Errorf("%w: %w", errTooLarge, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", errTimeout, err)
	case errors.As(err, &sb):
		switch sb.Code {
		case azservicebus.CodeNotFound:
			return fmt.Errorf("%w: %w", errGone, err)
		case azservicebus.CodeUnauthorizedAccess:
			return fmt.Errorf("%w: %w", errUnauthorized, err)
		case azservicebus.CodeTimeout:
			return fmt.Errorf("%w: %w", errTimeout, err)
		case azservicebus.CodeConnectionLost, azservicebus.CodeClosed:
			return fmt.Errorf("%w: %w", errConnection, err)
		}
	case errors.As(err, &remote):
		if known, ok := conditions[remote.Condition]; ok {
			return fmt.Errorf("%w: %w", known, err)
		}
	}
	return err
}

// insert puts the entity into a sentence of the table.
func insert(sentence, entity string) string {
	return strings.ReplaceAll(sentence, "%s", entity)
}
