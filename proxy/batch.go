// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"overdue/scheduler"
)

// maxBatch is the most messages that Service Bus takes in one batch (Standard). It also
// bounds what a small body of many empty messages can cost.
const maxBatch = 4500

// batchEntry is one message of a batch as the API has it.
type batchEntry struct {
	Body             *string
	BrokerProperties json.RawMessage
	UserProperties   map[string]json.RawMessage
}

// parseBatch reads a body that is a JSON array of messages.
func parseBatch(h http.Header, body []byte) ([]*restMessage, error) {
	// The properties of a batch are in its body. A deadline in a header would be passed over
	// in silence, and leave messages unwatched whose sender believes otherwise.
	at, within, err := scheduler.StatedDeadline(func(name string) any {
		if v := h.Get(name); v != "" {
			return v
		}
		return nil
	})
	if err != nil || within > 0 || !at.IsZero() {
		return nil, badRequest("A deadline in a header does not apply to a batch; state it in the UserProperties of each message.")
	}
	if !utf8.Valid(body) {
		return nil, badRequest("The body of the batch is not UTF-8.")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, badRequest("The body of the batch is not a JSON array.")
	}
	var ms []*restMessage
	for d.More() {
		if len(ms) == maxBatch {
			return nil, fmt.Errorf("%w: batch of more than %d messages", errTooLarge, maxBatch)
		}
		m, err := nextOfBatch(d)
		if err != nil {
			var re *requestError
			if errors.As(err, &re) {
				err = badRequest("Message %d: %s", len(ms)+1, re.sentence)
			}
			return nil, err
		}
		ms = append(ms, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, badRequest("The body of the batch ends early.")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("The body of the batch goes on after its end.")
	}
	if len(ms) == 0 {
		return nil, badRequest("The batch is empty.")
	}
	return ms, nil
}

func nextOfBatch(d *json.Decoder) (*restMessage, error) {
	var e *batchEntry
	if err := d.Decode(&e); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) && wrongType.Field != "" {
			return nil, badRequest("%s is %s; Body is a string, BrokerProperties and UserProperties are objects.", wrongType.Field, withArticle(wrongType.Value))
		}
		return nil, badRequest("It is not a JSON object.")
	}
	if e == nil { // null
		return nil, badRequest("It is not a JSON object.")
	}
	m := &restMessage{}
	if e.Body != nil {
		m.body = []byte(*e.Body)
	}
	var err error
	if len(e.BrokerProperties) > 0 && string(e.BrokerProperties) != "null" {
		if m.broker, err = parseBrokerProperties(e.BrokerProperties); err != nil {
			return nil, err
		}
	}
	if m.properties, err = userProperties(e.UserProperties); err != nil {
		return nil, err
	}
	return m, m.complete()
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
			return nil, badRequest("The user property %s is not a string, a number, true, false or null.", quoted(name))
		case '"':
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, badRequest("The user property %s cannot be read.", quoted(name))
			}
			properties[name] = s
		case 't', 'f':
			properties[name] = value[0] == 't'
		case 'n':
			properties[name] = nil
		default:
			n, ok := number(string(value))
			if !ok {
				return nil, badRequest("The user property %s is a number out of range.", quoted(name))
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
