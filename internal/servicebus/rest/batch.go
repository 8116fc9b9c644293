// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// BatchContentType marks a body that is a JSON array of messages.
const BatchContentType = "application/vnd.microsoft.servicebus.json"

// MaxBatch is the most messages that Service Bus takes in one batch (Standard). It also
// bounds what a small body of many empty messages can cost.
const MaxBatch = 4500

// batchEntry is one message of a batch as the API has it.
type batchEntry struct {
	Body             *string
	BrokerProperties json.RawMessage
	UserProperties   map[string]json.RawMessage
}

// ParseBatch reads a body that is a JSON array of messages. The properties of a batch are in
// its body, none in the headers of its request. Errors are ErrBadRequest, and ErrTooLarge for
// more than MaxBatch messages.
func ParseBatch(body []byte) ([]*Message, error) {
	if !utf8.Valid(body) {
		return nil, BadRequest("The body of the batch is not UTF-8.")
	}
	if err := checkKeysOnce(body); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, BadRequest("The body of the batch is not a JSON array.")
	}
	var ms []*Message
	for d.More() {
		if len(ms) == MaxBatch {
			return nil, fmt.Errorf("%w: batch of more than %d messages", ErrTooLarge, MaxBatch)
		}
		m, err := nextOfBatch(d)
		if err != nil {
			var re *RequestError
			if errors.As(err, &re) {
				err = BadRequest("Message %d: %s", len(ms)+1, re.Sentence)
			}
			return nil, err
		}
		ms = append(ms, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, BadRequest("The body of the batch ends early.")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, BadRequest("The body of the batch goes on after its end.")
	}
	if len(ms) == 0 {
		return nil, BadRequest("The batch is empty.")
	}
	return ms, nil
}

func nextOfBatch(d *json.Decoder) (*Message, error) {
	var e *batchEntry
	if err := d.Decode(&e); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) && wrongType.Field != "" {
			return nil, BadRequest("%s is %s; Body is a string, BrokerProperties and UserProperties are objects.", wrongType.Field, withArticle(wrongType.Value))
		}
		return nil, BadRequest("It is not a JSON object.")
	}
	if e == nil { // null
		return nil, BadRequest("It is not a JSON object.")
	}
	m := &Message{}
	if e.Body != nil {
		m.Body = []byte(*e.Body)
	}
	var err error
	if len(e.BrokerProperties) > 0 && string(e.BrokerProperties) != "null" {
		if m.Broker, err = readBrokerProperties(e.BrokerProperties); err != nil {
			return nil, err
		}
	}
	if m.Properties, err = userProperties(e.UserProperties); err != nil {
		return nil, err
	}
	return m, m.Broker.check()
}

// userProperties reads the application properties of one message of a batch.
func userProperties(raw map[string]json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	properties := make(map[string]any, len(raw))
	for name, value := range raw {
		switch value[0] {
		case '{', '[':
			return nil, BadRequest("The user property %s is not a string, a number, true, false or null.", Quoted(name))
		case '"':
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, BadRequest("The user property %s cannot be read.", Quoted(name))
			}
			properties[name] = s
		case 't', 'f':
			properties[name] = value[0] == 't'
		case 'n':
			properties[name] = nil
		default:
			n, ok := number(string(value))
			if !ok {
				return nil, BadRequest("The user property %s is a number out of range.", Quoted(name))
			}
			properties[name] = n
		}
	}
	return properties, nil
}

func withArticle(kind string) string {
	if kind == "object" || kind == "array" {
		return "an " + kind
	}
	return "a " + kind
}
