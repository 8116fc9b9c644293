// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// What can become of a send, beside success. The doors branch on these and on nothing
// else; classify finds them in what the SDK returns.
var (
	errBadRequest   = errors.New("bad request")                      // a requestError, or the broker refused the message for what it is
	errUnauthorized = errors.New("unauthorized")                     // our credentials do not hold for the entity
	errForbidden    = errors.New("entity is disabled")               //
	errQuota        = errors.New("entity is full")                   //
	errTooLarge     = errors.New("message is too large")             // for the link, the entity's settings or MaxBodySize
	errSlowBody     = errors.New("request body did not come")        // in time
	errGone         = errors.New("entity does not exist")            //
	errUnsupported  = errors.New("request is not relayed")           //
	errBusy         = errors.New("too many sends in flight")         // no free place within SendTimeout
	errThrottled    = errors.New("broker is busy")                   //
	errTimeout      = errors.New("broker did not answer in time")    // the message may be in the queue
	errConnection   = errors.New("connection to the broker is lost") // the message may be in the queue
	errClosed       = errors.New("proxy is closed")                  //
	errCompanion    = errors.New("companion was not written")        // the message may be in the queue
)

// failures is the one table: what went wrong, the status that the Service Bus REST API
// answers, after how many seconds a retry may help (0 = not as it stands), and the
// sentence. %s is the entity. An empty sentence is the error's own.
var failures = []struct {
	err        error
	status     int
	retryAfter int
	sentence   string
}{
	{errBadRequest, http.StatusBadRequest, 0, ""},
	{errUnauthorized, http.StatusUnauthorized, 0, "The credentials of the proxy do not allow to send to '%s'."},
	{errForbidden, http.StatusForbidden, 0, "The messaging entity '%s' is disabled for sends."},
	{errQuota, http.StatusForbidden, 0, "The messaging entity '%s' has reached its size quota."},
	{errTooLarge, http.StatusForbidden, 0, "The message is larger than '%s' accepts."},
	{errSlowBody, http.StatusRequestTimeout, 1, "The body of the request did not come in time."},
	{errGone, http.StatusGone, 0, "The messaging entity '%s' could not be found."},
	{errUnsupported, http.StatusNotImplemented, 0, "The proxy takes POST /{entity}/messages only; send this request to the Service Bus namespace itself."},
	{errCompanion, http.StatusServiceUnavailable, 1, "The deadline of the message for '%s' could not be written to the monitor queue; send it again."},
	{errBusy, http.StatusServiceUnavailable, 1, "Too many sends are in flight; send it again."},
	{errThrottled, http.StatusServiceUnavailable, 10, "The broker is busy; send it again."}, // 10 s: its own advice when it throttles
	{errTimeout, http.StatusServiceUnavailable, 1, "The broker did not accept the message for '%s' in time; send it again."},
	{errConnection, http.StatusServiceUnavailable, 1, "The connection to the broker was lost; send it again."},
	{errClosed, http.StatusServiceUnavailable, 1, "The proxy is stopping; send it again."},
}

// A requestError says in one sentence what is wrong with a request. It is errBadRequest.
type requestError struct{ sentence string }

func (e *requestError) Error() string        { return e.sentence }
func (e *requestError) Is(target error) bool { return target == errBadRequest }

func badRequest(format string, args ...any) error {
	return &requestError{fmt.Sprintf(format, args...)}
}

// ofBatch names the message of a batch that err is about.
func ofBatch(err error, i, n int) error {
	var re *requestError
	if n > 1 && errors.As(err, &re) {
		return badRequest("Message %d of %d: %s", i+1, n, re.sentence)
	}
	return err
}

// quoted shows a value from outside in a sentence, cut to a bearable length.
func quoted(v any) string {
	s := []rune(fmt.Sprint(v))
	if t, ok := v.(time.Time); ok {
		s = []rune(t.Format(time.RFC3339Nano))
	}
	if len(s) > 64 {
		s = append(s[:64], '…')
	}
	return fmt.Sprintf("%q", string(s))
}

// answer is the row of the table for err: what a door tells its client.
func answer(err error, entity string) (status, retryAfter int, sentence string) {
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
	return http.StatusInternalServerError, 1, insert("The message for '%s' could not be sent; send it again.", entity)
}

// sentenceOf is the sentence of a requestError, or what the broker says in refusing.
func sentenceOf(err error) string {
	var re *requestError
	if errors.As(err, &re) {
		return re.sentence
	}
	var remote *amqp.Error
	if errors.As(err, &remote) && remote.Description != "" {
		return "The broker refused the message: " + remote.Description
	}
	return "The broker refused the message."
}

// conditions maps what the broker says when it refuses a transfer or a link.
var conditions = map[amqp.ErrCond]error{
	amqp.ErrCondNotFound:              errGone,
	amqp.ErrCondResourceDeleted:       errGone,
	amqp.ErrCondUnauthorizedAccess:    errUnauthorized,
	amqp.ErrCondResourceLimitExceeded: errQuota,
	amqp.ErrCondMessageSizeExceeded:   errTooLarge,
	"com.microsoft:entity-disabled":   errForbidden,

	"com.microsoft:server-busy":         errThrottled,
	"com.microsoft:timeout":             errTimeout,
	"com.microsoft:operation-cancelled": errTimeout,
	amqp.ErrCondTransferLimitExceeded:   errThrottled, // go-amqp's word for: no credit came until the context ended

	amqp.ErrCondConnectionForced: errConnection,
	amqp.ErrCondDetachForced:     errConnection,

	amqp.ErrCondNotAllowed:                errBadRequest, // no session-id for an entity with sessions, say
	amqp.ErrCondInvalidField:              errBadRequest,
	amqp.ErrCondDecodeError:               errBadRequest,
	amqp.ErrCondPreconditionFailed:        errBadRequest,
	"com.microsoft:argument-error":        errBadRequest,
	"com.microsoft:argument-out-of-range": errBadRequest,
}

// classify finds the sentinel for what the SDK returned from a send. The SDK's own Error
// hides what it wraps, so its code decides where there is one; where the SDK passes an
// AMQP error on as it is, the condition does. An error that is none of these stays.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var sb *azservicebus.Error
	var remote *amqp.Error
	switch {
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
