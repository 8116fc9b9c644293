// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/http"
	"testing"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rest"
)

// checkPromise fails the test when a message leads to a promise or a stamp that the wire cannot
// hold, or to an error that is none of the client's.
func checkPromise(t *testing.T, ms []*rest.Message, err error) {
	t.Helper()
	if err != nil {
		if _, _, sentence := answer(err, "orders"); sentence == "" || len(sentence) > 1000 {
			t.Errorf("sentence %q, want a short one", sentence)
		}
		return
	}
	for _, m := range ms {
		known := knownOf(m)
		if _, _, err := promiseOf(known, Settings{StampTTL: true}, measured(time.Millisecond)); err != nil && !errors.Is(err, errBadRequest) {
			t.Errorf("promiseOf = %v, want a bad request or none", err)
		}
		if known.Stamp < 0 || known.Stamp >= amqp.MaxTTL || known.Stamp%time.Millisecond != 0 {
			t.Errorf("stamp %v, want whole milliseconds that a header can hold", known.Stamp)
		}
	}
}

func FuzzDeadlines(f *testing.F) {
	f.Add(`{"TimeToLive":10.5}`, "overdue-deadline", "2026-01-31T12:00:01Z")
	f.Add(`{"ScheduledEnqueueTimeUtc":"Sun, 06 Nov 2033 08:49:37 GMT"}`, "Ce-Expirytime", "Sun, 06 Nov 2033 08:49:37 GMT")
	f.Add(`{"TimeToLive":9.22337203685478E+11}`, "overdue-within", "PT30S")
	f.Fuzz(func(t *testing.T, broker, name, value string) {
		h := http.Header{"Brokerproperties": {broker}}
		h.Add(name, value)
		if !utf8.ValidString(name) {
			return // net/http does not let it in
		}
		ms, err := rest.ParseSingle(h, nil)
		checkPromise(t, ms, err)
	})
}

func FuzzDeadlinesOfABatch(f *testing.F) {
	f.Add([]byte(`[{"Body":"a","BrokerProperties":{"TimeToLiveTimeSpan":"00:00:40"},"UserProperties":{"a":1,"overdue-within":"30s"}}]`))
	f.Add([]byte(`[{},{"UserProperties":{"overdue-deadline":"2033-11-06T08:49:37Z"}}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ms, err := rest.ParseBatch(body)
		checkPromise(t, ms, err)
	})
}
