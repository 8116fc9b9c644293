// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
)

// A request is a message that asks for an operation. It aliases the payload.
type request struct {
	message   amqp.Message
	operation string
	replyTo   string
	messageID amqp.Raw // as the client encoded it, nil = null
	txn       *amqp.TransactionalState
}

// readRequest reads what every request has. The error is for requests that
// cannot be answered.
func readRequest(payload []byte) (*request, *amqp.Error) {
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, message.Malformed(err)
	}
	req := &request{message: m}
	if r, ok := amqp.ListField(m.Properties, amqp.PropertyMessageID); ok {
		req.messageID = r.Raw()
	}
	if r, ok := amqp.ListField(m.Properties, amqp.PropertyReplyTo); ok {
		req.replyTo = r.String()
		if r.Err() != nil {
			return nil, message.Malformed(r.Err())
		}
	}
	req.operation, _ = req.property("operation")
	return req, nil
}

// property returns an application property that is a string.
func (req *request) property(name string) (string, bool) {
	r, ok := amqp.MapLookup(req.message.ApplicationProperties, name)
	if !ok {
		return "", false
	}
	s := r.String()
	return s, r.Err() == nil
}

// arguments returns the map that the body of the request holds.
func (req *request) arguments() (arguments, bool) {
	r, ok := req.message.Value()
	if !ok {
		return arguments{}, false
	}
	raw := r.Raw()
	check := amqp.NewReader(raw)
	if check.Map(); r.Err() != nil || check.Err() != nil {
		return arguments{}, false
	}
	return arguments{raw: raw}, true
}

// arguments are the named arguments of an operation. An argument that is missing or of another type
// reads as the zero value. The first such error stays, so that an operation can read them all and
// check err once.
type arguments struct {
	raw amqp.Raw
	err *amqp.Error
	txn *amqp.TransactionalState // in which the operation takes part, nil: in none
}

// read looks name up and lets f read it. A null counts as missing.
func (a *arguments) read(name string, required bool, f func(r *amqp.Reader)) {
	r, ok := amqp.MapLookup(a.raw, name)
	if ok && r.Null() {
		ok = false
	}
	switch {
	case ok:
		if f(&r); r.Err() != nil {
			a.fail("The argument '%s' is not valid: %v.", name, r.Err())
		}
	case required:
		a.fail("The argument '%s' is missing.", name)
	}
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = amqp.Errorf(condArgumentError, format, args...)
	}
}

// integer reads a whole number of any width.
func (a *arguments) integer(name string, required bool) (v int64) {
	a.read(name, required, func(r *amqp.Reader) { v = r.Integer() })
	return v
}

// text reads an optional string.
func (a *arguments) text(name string) (v string) {
	a.read(name, false, func(r *amqp.Reader) { v = r.String() })
	return v
}

// bool reads an optional boolean.
func (a *arguments) bool(name string) (v bool) {
	a.read(name, false, func(r *amqp.Reader) { v = r.Bool() })
	return v
}

// elements reads an array, or a list where a client sends that instead, of 1 to
// most elements.
func (a *arguments) elements(name string, most int, f func(r *amqp.Reader)) {
	a.read(name, true, func(r *amqp.Reader) {
		sub, n := sequence(r)
		if n == 0 && r.Err() == nil {
			a.fail("The argument '%s' is empty.", name)
		}
		if n > most {
			a.fail("The argument '%s' has %d elements, %d is the most.", name, n, most)
			return
		}
		for range n {
			if f(&sub); sub.Err() != nil || a.err != nil {
				break
			}
		}
		r.Fail(sub.Err())
	})
}

// sequence enters an array or a list.
func sequence(r *amqp.Reader) (amqp.Reader, int) {
	probe := *r
	if sub, n := probe.Array(); probe.Err() == nil {
		*r = probe
		return sub, n
	}
	return r.List()
}

// A response answers a request.
type response struct {
	status      int32
	description string
	condition   amqp.Symbol // of a failure, or of a 204 that says what there was none of
	body        amqp.Raw    // a map; nil = an empty one
	free        func()      // ends the use of body; nil: nobody else uses it

	// commit ends what waited until the disk has it, or cannot be asked to keep it. An error means that
	// the response must not leave. nil: nothing waits.
	commit func(stored bool) error
}

// append appends the message that returns res, whose body nobody may use any more.
func (res response) append(b []byte, to string, id amqp.Raw) []byte {
	body := res.body
	if body == nil {
		body = emptyMap
	}
	b = amqp.Answer{
		To: to, CorrelationID: id,
		Status: res.status, Description: res.description, Condition: res.condition, Body: body,
	}.Append(slices.Grow(b, 256+len(body)))
	if res.free != nil {
		res.free()
	}
	return b
}

// emptyMap is a map without entries.
var emptyMap = func() amqp.Raw {
	b, start := amqp.BeginMap(nil)
	return amqp.EndMap(b, start, 0)
}()

func ok(body amqp.Raw) response {
	return response{status: statusOK, description: "OK", body: body}
}

func noContent() response {
	return response{status: statusNoContent, description: "No Content"}
}

// failure answers with an error of a queue.
func failure(err error) response { return refused(refusalOf(err)) }

func badRequest(description string) response {
	return refused(amqp.Errorf(condArgumentError, "%s", description))
}

// unsupported answers a request for an operation that does not exist here.
func unsupported(operation string) response {
	if operation == "" {
		return badRequest("The request names no operation.")
	}
	if !utf8.ValidString(operation) {
		operation = "?"
	}
	return refused(amqp.Errorf(amqp.ErrCondNotImplemented, "The operation '%.128s' is not supported.", operation))
}
