// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
)

// errAway: the client has gone, or the server ends; there is no response to send.
var errAway = errors.New("brokerhttp: the request has ended")

// A restRefusal is an answer of the REST runtime API that is no success.
type restRefusal struct {
	status     int
	retryAfter int // seconds; 0 = a retry does not help as things stand
	detail     string
}

func (e *restRefusal) Error() string { return e.detail }

// refusedConditions says which status a refusal of the broker has over REST. Those
// that are missing are errors of ours.
var refusedConditions = map[amqp.Symbol]int{
	amqp.ErrCondNotFound:                  http.StatusGone, // so the API has it: a queue that was never there is as gone as one that was
	amqp.ErrCondNotAllowed:                http.StatusBadRequest,
	amqp.ErrCondInvalidField:              http.StatusBadRequest,
	"com.microsoft:argument-error":        http.StatusBadRequest,
	"com.microsoft:argument-out-of-range": http.StatusBadRequest,
	amqp.ErrCondUnauthorizedAccess:        http.StatusUnauthorized,
	amqp.ErrCondResourceLimitExceeded:     http.StatusForbidden,
	amqp.ErrCondLinkMessageSizeExceeded:   http.StatusForbidden,
	"com.microsoft:entity-disabled":       http.StatusForbidden,
	"com.microsoft:server-busy":           http.StatusServiceUnavailable,
}

// refusalFor returns the response for err.
func refusalFor(err error) *restRefusal {
	var own *restRefusal
	var condition *amqp.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, rest.ErrBadRequest):
		return &restRefusal{status: http.StatusBadRequest, detail: err.Error()}
	case errors.Is(err, rest.ErrTooLarge):
		return &restRefusal{status: http.StatusForbidden, detail: "The message or the batch is too large: " + err.Error() + "."}
	case errors.As(err, &tooLarge):
		return &restRefusal{status: http.StatusForbidden, detail: fmt.Sprintf("The body is too large: at most %d bytes are taken.", tooLarge.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, rest.ErrSlowBody):
		return &restRefusal{status: http.StatusRequestTimeout, retryAfter: 1, detail: "The body of the request did not come in time."}
	case errors.Is(err, queue.ErrLockLost):
		return &restRefusal{status: http.StatusNotFound,
			detail: "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."}
	case errors.Is(err, queue.ErrClosed):
		return &restRefusal{status: http.StatusGone, detail: "The messaging entity has been deleted."}
	case errors.As(err, &condition):
		out := &restRefusal{status: refusedConditions[condition.Condition], detail: condition.Description}
		switch out.status {
		case 0:
			out.status = http.StatusInternalServerError
		case http.StatusServiceUnavailable:
			out.retryAfter = errBusy.retryAfter
		}
		return out
	}
	return &restRefusal{status: http.StatusInternalServerError, retryAfter: 1, detail: "The request could not be served: " + err.Error() + "."}
}

// refuse answers with an error as the service writes it.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := refusalFor(err)
	rest.Refuse(w, r, answer.status, answer.retryAfter, answer.detail)
}

// away is errAway when the request has ended, else err.
func away(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errAway
	}
	return err
}
