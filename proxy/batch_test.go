// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestABatchIsRead(t *testing.T) {
	got, err := parseBatch(http.Header{}, []byte(` [
		{"Body":"first","BrokerProperties":{"Label":"M1","TimeToLiveTimeSpan":"0.00:00:40","MessageId":"1"}},
		{"Body":"second","UserProperties":{"Priority":"Low","Count":3,"Yes":true,"Nothing":null,"Ratio":1.5},"BrokerProperties":{"MessageId":"2"}},
		{"BrokerProperties":{"MessageId":"3","Unknown":1},"UserProperties":null,"Unknown":[]}
	] `))
	if err != nil {
		t.Fatal(err)
	}
	want := []*restMessage{
		{body: []byte("first"), broker: brokerProperties{messageID: "1", label: "M1", timeToLive: 40 * time.Second}},
		{body: []byte("second"), broker: brokerProperties{messageID: "2"}, properties: map[string]any{
			"Priority": "Low", "Count": int32(3), "Yes": true, "Nothing": nil, "Ratio": 1.5}},
		{broker: brokerProperties{messageID: "3"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(restMessage{}, brokerProperties{})); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

func TestAMessageWithoutAnIDGetsOne(t *testing.T) {
	got, err := parseBatch(http.Header{}, []byte(`[{"Body":"a"},{"Body":"b","BrokerProperties":null}]`))
	if err != nil {
		t.Fatal(err)
	}
	a, b := got[0].broker.messageID, got[1].broker.messageID
	if len(a) != 36 || len(b) != 36 || a == b || a[14] != '4' {
		t.Errorf("message-ids %q and %q, want two UUIDs of version 4", a, b)
	}
}

func TestABatchThatCannotBeReadIsRefused(t *testing.T) {
	for body, want := range map[string]string{
		``: "not a JSON array", `{}`: "not a JSON array", `"a"`: "not a JSON array", `[]`: "empty",
		`[{"Body":"a"}`: "ends early", `[{"Body":"a"},`: "Message 2", `[{"Body":"a"}] x`: "goes on", `[{"Body":"a"}][]`: "goes on",
		`[{"Body":"a"},{"Body":1}]`:        "Message 2: Body is a number",
		`[{"Body":{"a":1}}]`:               "Message 1: Body is an object",
		`[7]`:                              "Message 1: It is not a JSON object",
		`[null]`:                           "Message 1: It is not a JSON object",
		`[[]]`:                             "Message 1: It is not a JSON object",
		`[{"BrokerProperties":{"To":1}}]`:  "Message 1: The To of BrokerProperties",
		`[{"BrokerProperties":[]}]`:        "Message 1: BrokerProperties is not a JSON object",
		`[{"UserProperties":{"a":{}}}]`:    "user property \"a\"",
		`[{"UserProperties":{"a":[1]}}]`:   "user property \"a\"",
		`[{"UserProperties":[]}]`:          "UserProperties is an array",
		`[{"UserProperties":{"a":1e999}}]`: "out of range",
		"[{\"Body\":\"\xff\"}]":            "UTF-8",
		`[{"BrokerProperties":{"SessionId":"a","PartitionKey":"b"}}]`: "differ",
	} {
		_, err := parseBatch(http.Header{}, []byte(body))
		if !errors.Is(err, errBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %v, want a bad request with %q", body, err, want)
		}
	}
}

func TestABatchIsBounded(t *testing.T) {
	full := "[" + strings.Repeat("{},", maxBatch-1) + "{}]"
	if ms, err := parseBatch(http.Header{}, []byte(full)); err != nil || len(ms) != maxBatch {
		t.Errorf("a batch of %d = %d messages, %v, want all", maxBatch, len(ms), err)
	}
	if _, err := parseBatch(http.Header{}, []byte("[{},"+full[1:])); !errors.Is(err, errTooLarge) {
		t.Errorf("a batch of %d = %v, want errTooLarge", maxBatch+1, err)
	}
}

func TestADeadlineInTheHeadOfABatchIsRefused(t *testing.T) {
	for _, name := range []string{propDeadline, propWithin, propExpiry} {
		for _, value := range []string{"30s", "2033-11-06T08:49:37Z"} { // each is unreadable for one of them
			h := http.Header{}
			h.Set(name, value)
			if _, err := parseBatch(h, []byte(`[{"Body":"a"}]`)); !errors.Is(err, errBadRequest) || !strings.Contains(err.Error(), "header") {
				t.Errorf("parseBatch with %s: %s = %v, want a bad request about the header", name, value, err)
			}
		}
	}
}
