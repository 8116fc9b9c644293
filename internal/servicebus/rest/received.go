// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Stamps are what the broker says of a message that somebody receives.
type Stamps struct {
	DeadLetterSource       string // "" = was not dead-lettered and forwarded
	DeliveryCount          int    // 1 on the first delivery
	EnqueuedSequenceNumber int64  // 0 = was not forwarded
	EnqueuedTime           time.Time
	LockToken              string // "" = is not locked, but received and deleted
	LockedUntil            time.Time
	SequenceNumber         int64
	State                  string // Active, Deferred, Scheduled
}

// forEver is the longest TimeSpan of .NET in seconds, which stands for no TTL.
const forEver = json.Number("922337203685.47754")

// AppendBroker appends the value of the header BrokerProperties for a received message: JSON in
// ASCII, its keys in the order of the alphabet. Values that are not set are left out, but for the
// numbers that every message has.
func AppendBroker(dst []byte, b *BrokerProperties, s *Stamps) []byte {
	all := map[string]any{
		"DeliveryCount":          s.DeliveryCount,
		"EnqueuedSequenceNumber": s.EnqueuedSequenceNumber,
		"SequenceNumber":         s.SequenceNumber,
		"TimeToLive":             forEver,
	}
	if b.TimeToLive > 0 {
		all["TimeToLive"] = b.TimeToLive.Seconds()
	}
	for name, text := range map[string]string{
		"CorrelationId": b.CorrelationID, "DeadLetterSource": s.DeadLetterSource, "Label": b.Label, "LockToken": s.LockToken,
		"MessageId": b.MessageID, "PartitionKey": b.PartitionKey, "ReplyTo": b.ReplyTo, "ReplyToSessionId": b.ReplyToSessionID,
		"SessionId": b.SessionID, "State": s.State, "To": b.To, "ViaPartitionKey": b.ViaPartitionKey,
	} {
		if text != "" {
			all[name] = text
		}
	}
	for name, at := range map[string]time.Time{
		"EnqueuedTimeUtc": s.EnqueuedTime, "LockedUntilUtc": s.LockedUntil, "ScheduledEnqueueTimeUtc": b.ScheduledEnqueueTime,
	} {
		if !at.IsZero() {
			all[name] = at.UTC().Format(http.TimeFormat)
		}
	}
	encoded, err := json.Marshal(all)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	for _, r := range string(encoded) {
		switch {
		case r < 0x7f:
			dst = append(dst, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default: // whatever a client takes a header's characters for, it reads the same
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
	}
	return dst
}

// notInAnswers are the headers of an answer that belong to HTTP or to the API. A property
// cannot stand in their place.
var notInAnswers = canonical(`
	BrokerProperties Cache-Control Connection Content-Encoding Content-Length Content-Range Content-Type
	Date Keep-Alive Location Proxy-Authenticate Proxy-Connection Retry-After Server Set-Cookie
	Strict-Transport-Security Trailer Transfer-Encoding Upgrade Www-Authenticate`)

// AddProperty puts a custom property into the headers of an answer, under its own spelling. It
// reports false when no header can carry it. Its name is no name of a header, or is one that HTTP
// needs, or its value is nil, which has no written form.
func AddProperty(h http.Header, name string, value any) bool {
	if value == nil || !isToken(name) || notInAnswers[http.CanonicalHeaderKey(name)] {
		return false
	}
	h[name] = []string{string(AppendValue(nil, value))}
	return true
}

// AppendValue appends the value of a property as a header has it: numbers, true and false as
// they are; strings, and dates in the form of RFC 1123, in quotes. Of a type that is not one
// of Message.Properties' it makes the empty string. propertyValue reads it back.
func AppendValue(dst []byte, value any) []byte {
	switch v := value.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case uint64: // which AMQP has
		return strconv.AppendUint(dst, v, 10)
	case float64:
		return appendFloat(dst, v)
	case time.Time:
		return append(v.UTC().AppendFormat(append(dst, '"'), http.TimeFormat), '"')
	case string:
		return appendQuoted(dst, v)
	}
	return append(dst, '"', '"')
}

// appendFloat appends a double so that it is read as one again, and what is no number as text.
func appendFloat(dst []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 0):
		return append(strconv.AppendFloat(append(dst, '"'), v, 'f', -1, 64), '"')
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return strconv.AppendFloat(dst, v, 'f', 1, 64)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

// appendQuoted appends s in quotes. Control characters, which a header cannot hold, are
// escaped as JSON does it, and what is not UTF-8 is replaced.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// isToken reports whether a header can be called so (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '!', '#' <= c && c <= '\'', c == '*', c == '+', c == '-', c == '.', '^' <= c && c <= '`', c == '|', c == '~':
		default:
			return false
		}
	}
	return name != ""
}
