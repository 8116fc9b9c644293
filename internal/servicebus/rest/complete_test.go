// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/servicebus/rest"
)

// A completed request reads as before, but for the additions.
func TestCompletedRequestsReadAsBefore(t *testing.T) {
	a := rest.Addition{MessageID: "made", TimeToLive: 1500 * time.Millisecond}
	for _, properties := range []string{"", "null", `{}`, `{"Label":"žluť <&>","TimeToLive":60,"Other":[1,{"x":null}]}`, `{"TimeToLiveTimeSpan":"0.01:00:00","SessionId":"s"}`} {
		h := http.Header{"Orderid": {"7"}}
		if properties != "" {
			h["brokerproperties"] = []string{properties}
		}
		read := func(h http.Header) *rest.Message {
			t.Helper()
			canonical := http.Header{}
			for name, values := range h {
				canonical[http.CanonicalHeaderKey(name)] = values
			}
			ms, err := rest.ParseSingle(canonical, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			return ms[0]
		}
		want := read(h)
		want.Broker.MessageID, want.Broker.TimeToLive = "made", 1500*time.Millisecond
		if err := rest.CompleteHeader(h, a); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, read(h)); diff != "" {
			t.Errorf("BrokerProperties %s (-want +completed):\n%s", properties, diff)
		}
	}

	body := []byte(`[{"Body":"a <&> \u0000","BrokerProperties":{"MessageId":"m","Label":"l","TimeToLive":9},"UserProperties":{"n":12345678901,"x":null}},` +
		`{"body":"b","brokerProperties":null},{}]`)
	want, err := rest.ParseBatch(body)
	if err != nil {
		t.Fatal(err)
	}
	completed, err := rest.CompleteBatch(body, []rest.Addition{{}, a, {MessageID: "other"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := rest.ParseBatch(completed)
	if err != nil {
		t.Fatal(err)
	}
	want[1].Broker.MessageID, want[1].Broker.TimeToLive, want[2].Broker.MessageID = "made", 1500*time.Millisecond, "other"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +completed):\n%s", diff)
	}
	if _, err := rest.CompleteBatch([]byte(`[{"BrokerProperties":{},"brokerproperties":{}}]`), make([]rest.Addition, 1)); err == nil {
		t.Error("a message with BrokerProperties twice is completed, want an error")
	}
}
