// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBrokerPropertiesOfAReceivedMessage(t *testing.T) {
	at := time.Date(2017, 4, 19, 19, 0, 39, 5e8, time.UTC)
	for _, tt := range []struct {
		name   string
		broker BrokerProperties
		stamps Stamps
		want   string
	}{
		{
			"locked, plain", BrokerProperties{MessageID: "6d8c", TimeToLive: 14 * 24 * time.Hour},
			Stamps{DeliveryCount: 1, EnqueuedTime: at, LockToken: "a1d774f6-ae8d-4338-a4dc-1cd26e360092", LockedUntil: at.Add(time.Minute), SequenceNumber: 41095346599755778, State: "Active"},
			`{"DeliveryCount":1,"EnqueuedSequenceNumber":0,"EnqueuedTimeUtc":"Wed, 19 Apr 2017 19:00:39 GMT",` +
				`"LockToken":"a1d774f6-ae8d-4338-a4dc-1cd26e360092","LockedUntilUtc":"Wed, 19 Apr 2017 19:01:39 GMT",` +
				`"MessageId":"6d8c","SequenceNumber":41095346599755778,"State":"Active","TimeToLive":1209600}`,
		},
		{
			"everything, with characters that no header holds",
			BrokerProperties{
				ContentType: "text/plain", CorrelationID: "c\n", Label: "grün 😀", MessageID: "\"\\", PartitionKey: "p", ReplyTo: "r", ReplyToSessionID: "rs",
				ScheduledEnqueueTime: at, SessionID: "s", TimeToLive: 10500 * time.Millisecond, To: "t", ViaPartitionKey: "v",
			},
			Stamps{DeadLetterSource: "other", DeliveryCount: 3, EnqueuedSequenceNumber: 7, EnqueuedTime: at, SequenceNumber: 8, State: "Deferred"},
			`{"CorrelationId":"c\n","DeadLetterSource":"other","DeliveryCount":3,"EnqueuedSequenceNumber":7,"EnqueuedTimeUtc":"Wed, 19 Apr 2017 19:00:39 GMT",` +
				`"Label":"gr\u00fcn \ud83d\ude00","MessageId":"\"\\","PartitionKey":"p","ReplyTo":"r","ReplyToSessionId":"rs",` +
				`"ScheduledEnqueueTimeUtc":"Wed, 19 Apr 2017 19:00:39 GMT","SequenceNumber":8,"SessionId":"s","State":"Deferred","TimeToLive":10.5,"To":"t","ViaPartitionKey":"v"}`,
		},
		{
			"lives for ever", BrokerProperties{}, Stamps{State: "Active"},
			`{"DeliveryCount":0,"EnqueuedSequenceNumber":0,"SequenceNumber":0,"State":"Active","TimeToLive":922337203685.47754}`,
		},
	} {
		if diff := cmp.Diff(tt.want, string(AppendBroker(nil, &tt.broker, &tt.stamps))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestPropertiesInAnAnswer(t *testing.T) {
	h := http.Header{"Content-Type": {"text/plain"}}
	for name, value := range map[string]any{
		"Priority": "High", "orderId": int32(7), "big": int64(math.MinInt64), "yes": true, "ratio": 0.1, "whole": 3.0, "huge": 1e300,
		"nan": math.NaN(), "inf": math.Inf(-1), "at": time.Date(2033, 11, 6, 9, 49, 37, 0, time.FixedZone("", 3600)), "text": "say \"hi\"\\\n\x7fü", "bad": "\xff", "From": "me",
	} {
		if !AddProperty(h, name, value) {
			t.Errorf("AddProperty(%q, %v) = false, want that a header carries it", name, value)
		}
	}
	for name, value := range map[string]any{
		"content-type": "x", "Transfer-Encoding": "chunked", "brokerproperties": "{}", "LOCATION": "elsewhere", "with space": 1, "": "x", "a\r\nb": "x",
		"ü": "x", "colon:": "x", "nil": nil,
	} {
		if AddProperty(h, name, value) {
			t.Errorf("AddProperty(%q, %v) = true, want that no header carries it", name, value)
		}
	}
	want := http.Header{
		"Content-Type": {"text/plain"}, "Priority": {`"High"`}, "orderId": {"7"}, "big": {"-9223372036854775808"}, "yes": {"true"}, "ratio": {"0.1"},
		"whole": {"3.0"}, "huge": {"1e+300"}, "nan": {`"NaN"`}, "inf": {`"-Inf"`}, "at": {`"Sun, 06 Nov 2033 08:49:37 GMT"`},
		"text": {`"say \"hi\"\\\u000a\u007fü"`}, "bad": {"\"\uFFFD\""}, "From": {`"me"`},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}
