// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An Addition is what a message is to have besides what its request says.
type Addition struct {
	MessageID  string        // "" leaves it as it is
	TimeToLive time.Duration // whole milliseconds; 0 leaves it as it is
}

// CompleteHeader puts a into the header of a request whose body is one message.
func CompleteHeader(h http.Header, a Addition) error {
	var value string
	for name, values := range h {
		if strings.EqualFold(name, HeaderBrokerProperties) && len(values) > 0 {
			value = values[0]
			delete(h, name)
		}
	}
	completed, err := a.to(json.RawMessage(value))
	if err != nil {
		return err
	}
	h[HeaderBrokerProperties] = []string{string(completed)}
	return nil
}

// CompleteBatch is the body of a request that sends a batch, which [ParseBatch] has read, with an
// addition for each of its messages. All that it does not concern keeps its meaning.
func CompleteBatch(body []byte, as []Addition) ([]byte, error) {
	var entries []map[string]json.RawMessage
	if err := json.Unmarshal(body, &entries); err != nil || len(entries) != len(as) {
		return nil, fmt.Errorf("sbrest: complete a batch of %d messages: %d were read: %w", len(as), len(entries), err)
	}
	for i, e := range entries {
		var old json.RawMessage
		found := 0
		for key, value := range e {
			if strings.EqualFold(key, HeaderBrokerProperties) {
				old = value
				found++
				delete(e, key)
			}
		}
		if found > 1 {
			return nil, BadRequest("Message %d: BrokerProperties is given %d times.", i+1, found)
		}
		completed, err := as[i].to(old)
		if err != nil {
			return nil, err
		}
		e[HeaderBrokerProperties] = completed
	}
	return json.Marshal(entries)
}

// to is BrokerProperties with a.
func (a Addition) to(properties json.RawMessage) (json.RawMessage, error) {
	keys := map[string]json.RawMessage{}
	if text := strings.TrimSpace(string(properties)); text != "" && text != "null" {
		if err := json.Unmarshal(properties, &keys); err != nil {
			return nil, BadRequest("BrokerProperties is not a JSON object: %s.", Quoted(text))
		}
	}
	put := func(key string, value any) (err error) {
		keys[key], err = json.Marshal(value)
		return err
	}
	if a.MessageID != "" {
		if err := put("MessageId", a.MessageID); err != nil {
			return nil, err
		}
	}
	if a.TimeToLive > 0 {
		delete(keys, "TimeToLiveTimeSpan")
		if err := put("TimeToLive", a.TimeToLive.Seconds()); err != nil {
			return nil, err
		}
	}
	return json.Marshal(keys)
}
