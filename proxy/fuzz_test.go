// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"net/http"
	"testing"
	"time"
	"unicode/utf8"
)

// checkRead fails the test when what was read from outside breaks what the send path
// and the wire rely on, or when an error is not one that a client understands.
func checkRead(t *testing.T, ms []*restMessage, err error) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, errBadRequest) && !errors.Is(err, errTooLarge) {
			t.Errorf("error %v, want a bad request", err)
		}
		if _, _, sentence := answer(err, "orders"); sentence == "" || len(sentence) > 1000 || !utf8.ValidString(errorBody(400, sentence)) {
			t.Errorf("sentence %q, want a short one", sentence)
		}
		return
	}
	for _, m := range ms {
		b := m.broker
		if b.messageID == "" || utf8.RuneCountInString(b.messageID) > maxID || utf8.RuneCountInString(b.sessionID) > maxID {
			t.Errorf("message-id %q, session-id %q, want 1 to 128 and at most 128 characters", b.messageID, b.sessionID)
		}
		if b.timeToLive < 0 || b.timeToLive > maxTTL || b.timeToLive%time.Millisecond != 0 {
			t.Errorf("TTL %v, want whole milliseconds that a header can hold", b.timeToLive)
		}
		for _, s := range []string{b.contentType, b.correlationID, b.label, b.replyTo, b.to, b.viaPartitionKey} {
			if !utf8.ValidString(s) {
				t.Errorf("%q is not UTF-8", s)
			}
		}
		for name, v := range m.properties {
			switch v := v.(type) {
			case nil, bool, int32, int64, float64, time.Time:
			case string:
				if !utf8.ValidString(v) {
					t.Errorf("property %q is not UTF-8: %q", name, v)
				}
			default:
				t.Errorf("property %q is a %T, which the wire does not know", name, v)
			}
		}
		known := m.known()
		if _, _, err := promiseOf(known, Settings{StampTTL: true}, measured(time.Millisecond)); err != nil && !errors.Is(err, errBadRequest) {
			t.Errorf("promiseOf = %v, want a bad request or none", err)
		}
		if known.Stamp < 0 || known.Stamp > maxTTL || known.Stamp%time.Millisecond != 0 {
			t.Errorf("stamp %v, want whole milliseconds that a header can hold", known.Stamp)
		}
	}
}

func FuzzBrokerProperties(f *testing.F) {
	f.Add(`{"CorrelationId":"c","Label":"l","MessageId":"m","SessionId":"s","PartitionKey":"s","TimeToLive":10.5,"ForcePersistence":true}`)
	f.Add(`{"ScheduledEnqueueTimeUtc":"Sun, 06 Nov 2033 08:49:37 GMT","TimeToLiveTimeSpan":"1.02:03:04.5"}`)
	f.Add(`{"TimeToLive":9.22337203685478E+11}`)
	f.Add(`{"TimeToLiveTimeSpan":"106751.23:59:59.9999999"}`)
	f.Fuzz(func(t *testing.T, text string) {
		ms, err := parseSingle(http.Header{"Brokerproperties": {text}}, nil)
		checkRead(t, ms, err)
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add("Priority", "High", `"quoted \" string"`)
	f.Add("overdue-deadline", "2026-01-31T12:00:01Z", "42")
	f.Add("Ce-Expirytime", "Sun, 06 Nov 2033 08:49:37 GMT", "-0.5e3")
	f.Add("overdue-within", "PT30S", "true")
	f.Fuzz(func(t *testing.T, name, a, b string) {
		h := http.Header{}
		h.Add(name, a)
		h.Add("Other", b)
		if !utf8.ValidString(name) {
			return // net/http does not let it in
		}
		ms, err := parseSingle(h, nil)
		checkRead(t, ms, err)
	})
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte(`[{"Body":"a","BrokerProperties":{"TimeToLiveTimeSpan":"00:00:40"},"UserProperties":{"a":1,"b":"c","d":null,"e":true,"f":1.5}}]`))
	f.Add([]byte(`[{},{"UserProperties":{"overdue-within":"30s"}}]`))
	f.Add([]byte(` [ {"Body" : null , "UserProperties" : { "x" :  -0 } } ] `))
	f.Fuzz(func(t *testing.T, body []byte) {
		ms, err := parseBatch(http.Header{}, body)
		checkRead(t, ms, err)
		if err == nil && len(ms) > bytes.Count(body, []byte("{")) {
			t.Errorf("%d messages out of %q", len(ms), body)
		}
	})
}
