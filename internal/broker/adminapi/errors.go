// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"overdue/internal/broker"
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

func notFound(format string, args ...any) error {
	return refusef(http.StatusNotFound, "SubCode=40400. Not Found. "+format, args...)
}

// asRefusal turns what the namespace says into what the service says.
func (c *call) asRefusal(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	status, code, why := http.StatusInternalServerError, "50000. Internal Error.", "could not be served: "+err.Error()+"."
	switch {
	case errors.Is(err, broker.ErrEntityNotFound):
		status, code, why = http.StatusNotFound, "40400. Not Found.", "could not be found."
	case errors.Is(err, broker.ErrEntityExists):
		status, code, why = http.StatusConflict, "40900. Conflict.", "already exists."
	case errors.Is(err, broker.ErrInvalidConfig):
		status, code, why = http.StatusBadRequest, "40000. Bad Request.", "cannot be like this: "+reasons(err)+"."
	case errors.Is(err, broker.ErrTooManyEntities):
		status, code, why = http.StatusForbidden, "40300. Forbidden.", "has no room: the namespace, topic or subscription is full."
	case errors.Is(err, broker.ErrClosed):
		status, code, why = http.StatusServiceUnavailable, "50300. Service Unavailable.", "is shutting down."
	}
	return &refusal{
		status: status, cause: err,
		detail: fmt.Sprintf("SubCode=%s The messaging entity 'sb://%s/%s' %s", code, c.r.Host, c.target.Path, why),
	}
}

// reasons are what is wrong, without the words that say that something is.
func reasons(err error) string {
	text := strings.ReplaceAll(err.Error(), broker.ErrInvalidConfig.Error()+": ", "")
	return strings.ReplaceAll(text, "\n", "; ")
}

// refuse answers with an error.
func (c *call) refuse(err error) {
	r := c.asRefusal(err)
	c.w.Header().Set("Content-Type", "application/xml; charset=utf-8")
	c.w.WriteHeader(r.status)
	w := writer{b: bufio.NewWriter(c.w)}
	w.open("Error")
	w.text("Code", strconv.Itoa(r.status))
	w.text("Detail", fmt.Sprintf("%s TrackingId:%s, SystemTracker:%s, Timestamp:%s",
		r.detail, rand.Text(), c.r.Host, time.Now().UTC().Format("2006-01-02T15:04:05")))
	w.close("Error")
	w.flush()
}
