// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestABatchIsRead(t *testing.T) {
	got, err := ParseBatch([]byte(` [
		{"Body":"first","BrokerProperties":{"Label":"M1","TimeToLiveTimeSpan":"0.00:00:40","MessageId":"1"}},
		{"Body":"second","UserProperties":{"Priority":"Low","Count":3,"Yes":true,"Nothing":null,"Ratio":1.5},"BrokerProperties":{"MessageId":"2"}},
		{"BrokerProperties":{"MessageId":"3","Unknown":1},"UserProperties":null,"Unknown":[]}
	] `))
	if err != nil {
		t.Fatal(err)
	}
	want := []*Message{
		{Body: []byte("first"), Broker: BrokerProperties{MessageID: "1", Label: "M1", TimeToLive: 40 * time.Second}},
		{Body: []byte("second"), Broker: BrokerProperties{MessageID: "2"}, Properties: map[string]any{
			"Priority": "Low", "Count": int32(3), "Yes": true, "Nothing": nil, "Ratio": 1.5}},
		{Broker: BrokerProperties{MessageID: "3"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
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
		_, err := ParseBatch([]byte(body))
		if !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %v, want a bad request with %q", body, err, want)
		}
	}
}

func TestABatchIsBounded(t *testing.T) {
	full := "[" + strings.Repeat("{},", MaxBatch-1) + "{}]"
	if ms, err := ParseBatch([]byte(full)); err != nil || len(ms) != MaxBatch {
		t.Errorf("a batch of %d = %d messages, %v, want all", MaxBatch, len(ms), err)
	}
	if _, err := ParseBatch([]byte("[{}," + full[1:])); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch of %d = %v, want ErrTooLarge", MaxBatch+1, err)
	}
}
