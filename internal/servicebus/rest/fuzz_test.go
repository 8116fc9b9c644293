// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
)

// checkRead fails the test when what was read from outside breaks what its readers and the
// wire rely on, or when an error is not one that a client understands.
func checkRead(t *testing.T, ms []*Message, err error) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, ErrBadRequest) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("error %v, want a bad request", err)
		}
		if text := ErrorBody(400, err.Error()); len(text) > 1100 || !utf8.ValidString(text) {
			t.Errorf("body of the error %q, want a short one", text)
		}
		return
	}
	for _, m := range ms {
		b := m.Broker
		if utf8.RuneCountInString(b.MessageID) > maxID || utf8.RuneCountInString(b.SessionID) > maxID {
			t.Errorf("message-id %q, session-id %q, want at most 128 characters", b.MessageID, b.SessionID)
		}
		if b.TimeToLive < 0 || b.TimeToLive > amqp.LongestLife || b.TimeToLive%time.Millisecond != 0 {
			t.Errorf("TTL %v, want whole milliseconds, not beyond the longest life", b.TimeToLive)
		}
		for _, s := range []string{b.ContentType, b.CorrelationID, b.Label, b.ReplyTo, b.To, b.ViaPartitionKey} {
			if !utf8.ValidString(s) {
				t.Errorf("%q is not UTF-8", s)
			}
		}
		for name, v := range m.Properties {
			checkValue(t, name, v)
		}
		checkBack(t, &b)
	}
}

// checkValue checks a property, and that a receiver who sends what he got sends the same.
func checkValue(t *testing.T, name string, v any) {
	t.Helper()
	switch v := v.(type) {
	case nil:
		return
	case time.Time:
		return // a header has whole seconds
	case bool, int32, int64, float64:
	case string:
		if !utf8.ValidString(v) {
			t.Errorf("property %q is not UTF-8: %q", name, v)
		}
		if _, err := time.Parse(http.TimeFormat, v); err == nil {
			return // read as the date that it is
		}
	default:
		t.Errorf("property %q is a %T, which the wire does not know", name, v)
	}
	text := string(AppendValue(nil, v))
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("property %q of %#v is written %q, which no header can hold", name, v, text)
	}
	if back, ok := propertyValue(text); !ok || back != v {
		t.Errorf("property %q of %#v is written %q and read as %#v, %v", name, v, text, back, ok)
	}
}

// checkBack checks that BrokerProperties that were received can be sent again.
func checkBack(t *testing.T, b *BrokerProperties) {
	t.Helper()
	if y := b.ScheduledEnqueueTime.Year(); y > 9999 || y < 0 {
		return
	}
	text := AppendBroker(nil, b, &Stamps{SequenceNumber: math.MaxInt64, EnqueuedTime: b.ScheduledEnqueueTime, State: "Active"})
	if !json.Valid(text) || bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("BrokerProperties %q, want JSON in printable ASCII", text)
		return
	}
	want := *b
	want.ContentType = "" // has a header of its own
	want.ScheduledEnqueueTime = b.ScheduledEnqueueTime.Truncate(time.Second)
	if got, err := parseBrokerProperties(text); err != nil || got != want {
		t.Errorf("%s is read as %+v, %v; want %+v", text, got, err, want)
	}
}

func FuzzBrokerProperties(f *testing.F) {
	f.Add(`{"CorrelationId":"c","Label":"l","MessageId":"m","SessionId":"s","PartitionKey":"s","TimeToLive":10.5,"ForcePersistence":true}`)
	f.Add(`{"ScheduledEnqueueTimeUtc":"Sun, 06 Nov 2033 08:49:37 GMT","TimeToLiveTimeSpan":"1.02:03:04.5"}`)
	f.Add(`{"TimeToLive":9.22337203685478E+11}`)
	f.Add(`{"TimeToLiveTimeSpan":"106751.23:59:59.9999999"}`)
	f.Fuzz(func(t *testing.T, text string) {
		ms, err := ParseSingle(http.Header{"Brokerproperties": {text}}, nil)
		checkRead(t, ms, err)
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add("Priority", "High", `"quoted \" string"`)
	f.Add("overdue-deadline", "2026-01-31T12:00:01Z", "42")
	f.Add("Ce-Expirytime", "Sun, 06 Nov 2033 08:49:37 GMT", "-0.5e3")
	f.Add("overdue-within", "PT30S", "true")
	f.Add("Escapes", `"a\u000ab\\\u00e4"`, `"\u007f\u12"`)
	f.Fuzz(func(t *testing.T, name, a, b string) {
		h := http.Header{}
		h.Add(name, a)
		h.Add("Other", b)
		if !utf8.ValidString(name) {
			return // net/http does not let it in
		}
		ms, err := ParseSingle(h, nil)
		checkRead(t, ms, err)
	})
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte(`[{"Body":"a","BrokerProperties":{"TimeToLiveTimeSpan":"00:00:40"},"UserProperties":{"a":1,"b":"c","d":null,"e":true,"f":1.5}}]`))
	f.Add([]byte(`[{},{"UserProperties":{"overdue-within":"30s"}}]`))
	f.Add([]byte(` [ {"Body" : null , "UserProperties" : { "x" :  -0 } } ] `))
	f.Fuzz(func(t *testing.T, body []byte) {
		ms, err := ParseBatch(body)
		checkRead(t, ms, err)
		if err == nil && len(ms) > bytes.Count(body, []byte("{")) {
			t.Errorf("%d messages out of %q", len(ms), body)
		}
	})
}
