// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"overdue/internal/amqp"
)

// Statuses of responses, as in HTTP.
const (
	statusAccepted       = 202
	statusBadRequest     = 400
	statusUnauthorized   = 401
	statusForbidden      = 403
	statusNotFound       = 404
	statusTimeout        = 408
	statusInternal       = 500
	statusNotImplemented = 501
	statusServerBusy     = 503
)

// Conditions that Service Bus adds to those of AMQP.
const (
	condArgumentError  amqp.Symbol = "com.microsoft:argument-error"
	condAuthFailed     amqp.Symbol = "com.microsoft:auth-failed"
	condServerBusy     amqp.Symbol = "com.microsoft:server-busy"
	condEntityDisabled amqp.Symbol = "com.microsoft:entity-disabled"
	condTimeout        amqp.Symbol = "com.microsoft:timeout"
)

// A returnAddress has the fields of a request that its response needs.
type returnAddress struct {
	messageID amqp.Raw // as the client encoded it, nil = none
	replyTo   string
}

// returnAddressOf copies the fields, so that the result shares no memory with the request.
func returnAddressOf(m *amqp.Message) (to returnAddress) {
	if r, ok := amqp.ListField(m.Properties, amqp.PropertyMessageID); ok {
		to.messageID = append(amqp.Raw(nil), r.Raw()...)
	}
	if r, ok := amqp.ListField(m.Properties, amqp.PropertyReplyTo); ok {
		to.replyTo = r.String()
	}
	return to
}

// A response answers a request on $cbs or another management node.
type response struct {
	status      int32
	description string
	condition   amqp.Symbol // of a failure, "" = none
}

// encode builds the message that returns res to the requester.
func (res response) encode(to *returnAddress) []byte {
	return amqp.Answer{
		To: to.replyTo, CorrelationID: to.messageID,
		Status: res.status, Description: res.description, Condition: res.condition,
	}.Append(make([]byte, 0, 320))
}

// readResponse reads a response, except for its correlation-id.
func readResponse(m *amqp.Message) response {
	a := amqp.ReadAnswer(m)
	return response{a.Status, a.Description, a.Condition}
}

// failure returns the response to a well-formed request that fails.
func failure(status int32, condition amqp.Symbol, format string, args ...any) response {
	return response{status: status, condition: condition, description: printable(fmt.Sprintf(format, args...))}
}

// printable turns any text into a valid AMQP string.
func printable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "?")
}

// succeeded reports whether a token is in effect.
func (res response) succeeded() bool { return res.status >= 200 && res.status < 300 }

// refusal returns the error with which upstream would have refused a link that lacks the refused
// token.
func (res response) refusal() *amqp.Error {
	e := &amqp.Error{Condition: res.condition, Description: printable(res.description)}
	switch {
	case res.status == statusUnauthorized:
		e.Condition = amqp.ErrCondUnauthorizedAccess // on links there is no auth-failed
	case res.status == statusNotFound:
		e.Condition = amqp.ErrCondNotFound
	case e.Condition != "":
	case res.status == statusTimeout:
		e.Condition = condTimeout
	case res.status == statusServerBusy:
		e.Condition = condServerBusy
	default:
		e.Condition = amqp.ErrCondInternalError
	}
	return e
}

// refusedAlike is the inverse of refusal.
func refusedAlike(e *amqp.Error) response {
	res := response{status: statusInternal, condition: e.Condition, description: printable(e.Description)}
	switch e.Condition {
	case amqp.ErrCondUnauthorizedAccess:
		res.status = statusUnauthorized
	case amqp.ErrCondNotFound:
		res.status = statusNotFound
	case condTimeout:
		res.status = statusTimeout
	case condServerBusy:
		res.status = statusServerBusy
	case amqp.ErrCondResourceLimitExceeded, amqp.ErrCondLinkMessageSizeExceeded:
		res.status = statusForbidden
	case amqp.ErrCondNotAllowed, condArgumentError, condEntityDisabled, amqp.ErrCondDecodeError:
		res.status = statusBadRequest
	case amqp.ErrCondNotImplemented:
		res.status = statusNotImplemented
	}
	return res
}
