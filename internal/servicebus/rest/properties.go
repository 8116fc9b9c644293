// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/duration"
)

// HeaderBrokerProperties carries the properties that the broker knows, as JSON.
const HeaderBrokerProperties = "BrokerProperties"

// maxID is the longest message-id, session-id or partition key, in characters.
const maxID = 128

// BrokerProperties are the keys of BrokerProperties that a send may have. The zero value
// of a field means that it is not set: the API has no other way to say so.
type BrokerProperties struct {
	ContentType          string // of a batch; else the request's own header
	CorrelationID        string
	Label                string
	MessageID            string
	PartitionKey         string
	ReplyTo              string
	ReplyToSessionID     string
	ScheduledEnqueueTime time.Time // UTC, whole milliseconds
	SessionID            string
	TimeToLive           time.Duration // whole milliseconds, at most amqp.LongestLife
	To                   string
	ViaPartitionKey      string
}

// brokerPropertiesOf reads the header of a request.
func brokerPropertiesOf(h http.Header) (BrokerProperties, error) {
	switch values := h.Values(HeaderBrokerProperties); {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return BrokerProperties{}, nil
	case len(values) > 1:
		return BrokerProperties{}, BadRequest("The header BrokerProperties is given %d times.", len(values))
	default:
		return parseBrokerProperties([]byte(values[0]))
	}
}

// parseBrokerProperties reads the JSON of BrokerProperties. Keys that a sender may not
// set are passed over, as the API does; so is null.
func parseBrokerProperties(data []byte) (b BrokerProperties, err error) {
	if !utf8.Valid(data) {
		return b, BadRequest("BrokerProperties is not UTF-8.")
	}
	if err := checkKeysOnce(data); err != nil {
		return b, err
	}
	return readBrokerProperties(data)
}

// readBrokerProperties is parseBrokerProperties for UTF-8 that states no key twice.
func readBrokerProperties(data []byte) (b BrokerProperties, err error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return b, BadRequest("BrokerProperties is not a JSON object: %s.", Quoted(string(data)))
	}
	for key, field := range map[string]*string{
		"ContentType": &b.ContentType, "CorrelationId": &b.CorrelationID, "Label": &b.Label,
		"MessageId": &b.MessageID, "PartitionKey": &b.PartitionKey, "ReplyTo": &b.ReplyTo,
		"ReplyToSessionId": &b.ReplyToSessionID, "SessionId": &b.SessionID, "To": &b.To,
		"ViaPartitionKey": &b.ViaPartitionKey,
	} {
		if err := decode(keys, key, "a string", field); err != nil {
			return b, err
		}
	}
	// There is no entity any more whose messages are not persistent.
	var forcePersistence bool
	if err := decode(keys, "ForcePersistence", "true or false", &forcePersistence); err != nil {
		return b, err
	}
	if b.ScheduledEnqueueTime, err = scheduledEnqueueTime(keys); err != nil {
		return b, err
	}
	b.TimeToLive, err = timeToLive(keys)
	return b, err
}

// decode reads the value of one key, when it is there and not null.
func decode(keys map[string]json.RawMessage, key, want string, into any) error {
	raw, ok := keys[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return BadRequest("The %s of BrokerProperties is %s, not %s.", key, Quoted(string(raw)), want)
	}
	return nil
}

func scheduledEnqueueTime(keys map[string]json.RawMessage) (time.Time, error) {
	const key, want = "ScheduledEnqueueTimeUtc", "a date as in Sun, 06 Nov 2033 08:49:37 GMT or 2033-11-06T08:49:37Z"
	var text string
	if err := decode(keys, key, want, &text); err != nil || text == "" {
		return time.Time{}, err
	}
	t, ok := parseTime(text)
	if !ok {
		return time.Time{}, BadRequest("The %s of BrokerProperties is %s, not %s.", key, Quoted(text), want)
	}
	// The wire has milliseconds. Cutting the rest off here keeps our value equal to
	// the one that the broker sees.
	return t.Truncate(time.Millisecond), nil
}

// timeToLive reads TimeToLive, in seconds, or TimeToLiveTimeSpan.
func timeToLive(keys map[string]json.RawMessage) (time.Duration, error) {
	var seconds *float64
	if err := decode(keys, "TimeToLive", "a number of seconds", &seconds); err != nil {
		return 0, err
	}
	var span string
	if err := decode(keys, "TimeToLiveTimeSpan", "a time span as in 0.00:00:40", &span); err != nil {
		return 0, err
	}
	var ttl time.Duration
	switch {
	case seconds == nil && span == "":
		return 0, nil
	case seconds != nil && span != "":
		return 0, BadRequest("BrokerProperties has both TimeToLive and TimeToLiveTimeSpan.")
	case seconds != nil:
		ttl = ofSeconds(*seconds)
	default:
		var ok bool
		if ttl, ok = duration.ParseTimeSpan(span); !ok {
			return 0, BadRequest("The TimeToLiveTimeSpan of BrokerProperties is %s, not a time span as in 0.00:00:40.", Quoted(span))
		}
	}
	return life(ttl)
}

// life is ttl in whole milliseconds, 0 for one without end. A property that was copied from a
// received message has the longest TimeSpan of .NET where no TTL was set: it sets none.
func life(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl <= 0:
		return 0, BadRequest("The TimeToLive of BrokerProperties must be more than 0 seconds.")
	case ttl > amqp.LongestLife:
		return 0, nil
	}
	return duration.RoundUp(ttl), nil
}

// ofSeconds is a span of seconds, the longest that there is when they are too many.
func ofSeconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	if s <= 0 {
		return 0
	}
	// Microseconds are exact for any TTL that a header can hold, where nanoseconds in a
	// float are not: 0.3 s must not be rounded up to 301 ms.
	return max(time.Duration(math.Round(s*1e6))*time.Microsecond, 1)
}

// check holds the properties against the rules of Service Bus.
func (b *BrokerProperties) check() error {
	for _, id := range []struct{ name, value string }{
		{"MessageId", b.MessageID}, {"SessionId", b.SessionID}, {"PartitionKey", b.PartitionKey},
		{"ReplyToSessionId", b.ReplyToSessionID}, {"ViaPartitionKey", b.ViaPartitionKey},
	} {
		if n := utf8.RuneCountInString(id.value); n > maxID {
			return BadRequest("The %s has %d characters; at most %d are allowed.", id.name, n, maxID)
		}
	}
	if b.SessionID != "" && b.PartitionKey != "" && b.SessionID != b.PartitionKey {
		return BadRequest("The SessionId and the PartitionKey are both set and differ.")
	}
	return nil
}

// timeFormats are the ways to write an instant: RFC 1123 as HTTP has it, and ISO 8601.
// Where no zone is given it is UTC, which is what the API's names say.
var timeFormats = []string{
	http.TimeFormat, time.RFC1123Z,
	time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
}

// parseTime reads an instant, as UTC.
func parseTime(s string) (t time.Time, ok bool) {
	s = strings.TrimSpace(s)
	// Most property values are no dates; the shortest date has 19 characters.
	if len(s) < 19 || len(s) > 40 {
		return time.Time{}, false
	}
	for _, format := range timeFormats {
		if t, err := time.Parse(format, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}
