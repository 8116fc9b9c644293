// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// A tokenRequest is a client's request to $cbs. It shares no memory with the payload that it was
// read from.
type tokenRequest struct {
	returnAddress
	operation string
	audience  string
	kind      string // of token
	token     string
	ambiguous *amqp.Error // it states something twice
}

// readTokenRequest reads a message sent to $cbs. It returns an error for messages that cannot be
// answered; the error quotes nothing of them.
func readTokenRequest(payload []byte) (tokenRequest, *amqp.Error) {
	m, err := amqp.ParseMessage(payload)
	if err == nil {
		err = amqp.CheckProperties(m.Properties)
	}
	if err != nil {
		return tokenRequest{}, amqp.Errorf(amqp.ErrCondDecodeError, "The request is malformed.")
	}
	var req tokenRequest
	req.returnAddress = returnAddressOf(&m)
	req.ambiguous = rights.AmbiguousRequest(&m)
	req.operation = textProperty(m.ApplicationProperties, "operation")
	req.audience = textProperty(m.ApplicationProperties, "name")
	req.kind = textProperty(m.ApplicationProperties, "type")
	if r, ok := m.Value(); ok {
		req.token = textOrBytes(r)
	}
	return req, nil
}

// textProperty returns a string property, "" when there is none.
func textProperty(properties amqp.Raw, name string) string {
	r, ok := amqp.MapLookup(properties, name)
	if !ok {
		return ""
	}
	return r.String()
}

// textOrBytes returns a string, or the bytes of a binary as one: Python puts a token as binary.
func textOrBytes(r amqp.Reader) string {
	probe := r
	if s := r.String(); r.Err() == nil {
		return s
	}
	if b := probe.Binary(); probe.Err() == nil {
		return string(b)
	}
	return ""
}
