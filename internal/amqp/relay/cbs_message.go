// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"strconv"
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rights"
)

// Messages of $cbs in both directions: the relay answers its client's, and sends its own
// upstream.

// maxTokenMessage bounds a request and a response on $cbs, in bytes. Tokens of
// Microsoft Entra have a few thousand.
const maxTokenMessage = 64 << 10

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

// putTokenMessage builds the request that puts t for audience. The expiry is a
// string of seconds, as the Go SDK has it; "0" is a token of unknown end.
func putTokenMessage(id uint64, replyTo, audience string, t Token) []byte {
	out := amqp.AppendDescriptor(make([]byte, 0, 320+len(t.Text)+len(audience)), amqp.CodeProperties)
	out, list := amqp.BeginList(out)
	out = amqp.AppendString(out, correlation(id)) // message-id
	out = amqp.AppendNull(out)                    // user-id
	out = amqp.AppendString(out, addressCBS)      // to
	out = amqp.AppendNull(out)                    // subject
	out = amqp.AppendString(out, replyTo)
	out = amqp.EndList(out, list, 5)

	expiry := "0"
	if !t.Expires.IsZero() {
		expiry = strconv.FormatInt(t.Expires.Unix(), 10)
	}
	out = amqp.AppendDescriptor(out, amqp.CodeApplicationProperties)
	out, props := amqp.BeginMap(out)
	pairs := [...][2]string{{"operation", opPutToken}, {"type", t.Type}, {"name", audience}, {"expiration", expiry}}
	for _, p := range pairs {
		out = amqp.AppendString(out, p[0])
		out = amqp.AppendString(out, p[1])
	}
	out = amqp.EndMap(out, props, len(pairs))
	return amqp.AppendValueSection(out, amqp.AppendString(nil, t.Text))
}

const (
	addressCBS = "$cbs"
	opPutToken = "put-token"
)

// correlation returns the message-id of a request of the relay. It is a string, as with the SDKs,
// so that every broker echoes it.
func correlation(id uint64) string { return correlationPrefix + strconv.FormatUint(id, 10) }

const correlationPrefix = "overdue-"

// readTokenResponse reads an answer of upstream and the id of its request.
func readTokenResponse(payload []byte) (id uint64, res response, err error) {
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		return 0, res, err
	}
	r, _ := amqp.ListField(m.Properties, amqp.PropertyCorrelationID)
	number, ours := strings.CutPrefix(textOrBytes(r), correlationPrefix)
	if id, err = strconv.ParseUint(number, 10, 64); err != nil || !ours {
		return 0, res, fmt.Errorf("%w: a response to no request of the relay", amqp.ErrMalformed)
	}
	return id, readResponse(&m), nil
}
