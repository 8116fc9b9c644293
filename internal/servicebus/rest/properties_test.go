// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
)

func TestEveryKeyOfBrokerPropertiesIsRead(t *testing.T) {
	got, err := parseBrokerProperties([]byte(`{
		"CorrelationId":"c","ForcePersistence":true,"Label":"l","MessageId":"m","PartitionKey":"s","ReplyTo":"r",
		"ReplyToSessionId":"rs","ScheduledEnqueueTimeUtc":"Sun, 06 Nov 2033 08:49:37 GMT","SessionId":"s","TimeToLive":10.5,
		"To":"t","ViaPartitionKey":"v","ContentType":"text/plain",
		"DeliveryCount":3,"State":"Active","SequenceNumber":12,"LockToken":"x","EnqueuedTimeUtc":"whatever","Other":{"a":[1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := BrokerProperties{
		ContentType: "text/plain", CorrelationID: "c", Label: "l", MessageID: "m", PartitionKey: "s", ReplyTo: "r",
		ReplyToSessionID: "rs", ScheduledEnqueueTime: time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC), SessionID: "s",
		TimeToLive: 10500 * time.Millisecond, To: "t", ViaPartitionKey: "v",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("broker properties (-want +got):\n%s", diff)
	}
}

func TestTimesOfBrokerPropertiesAreRead(t *testing.T) {
	for text, want := range map[string]BrokerProperties{
		`{}`:                                                 {},
		`{"TimeToLive":null,"To":null}`:                      {},
		`{"TimeToLive":10}`:                                  {TimeToLive: 10 * time.Second},
		`{"TimeToLive":0.3}`:                                 {TimeToLive: 300 * time.Millisecond},
		`{"TimeToLive":0.0001}`:                              {TimeToLive: time.Millisecond},
		`{"TimeToLive":1e-30}`:                               {TimeToLive: time.Millisecond},
		`{"TimeToLive":4294967.295}`:                         {TimeToLive: amqp.MaxTTL},
		`{"TimeToLive":8640000}`:                             {TimeToLive: 100 * 24 * time.Hour},
		`{"TimeToLiveTimeSpan":"100.00:00:00.001"}`:          {TimeToLive: 100*24*time.Hour + time.Millisecond},
		`{"TimeToLive":3.2e9}`:                               {}, // more than 100 years
		`{"TimeToLive":9.2233720368e11}`:                     {}, // TimeSpan.MaxValue, as a received message shows it
		`{"TimeToLiveTimeSpan":"0:0:40"}`:                    {TimeToLive: 40 * time.Second},
		`{"TimeToLiveTimeSpan":"10675199.02:48:05.4775807"}`: {},
		`{"ScheduledEnqueueTimeUtc":"2033-11-06T08:49:37.0019999Z"}`:   {ScheduledEnqueueTime: time.Date(2033, 11, 6, 8, 49, 37, 1e6, time.UTC)},
		`{"ScheduledEnqueueTimeUtc":"2033-11-06T08:49:37","Label":""}`: {ScheduledEnqueueTime: time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC)},
	} {
		got, err := parseBrokerProperties([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestBrokerPropertiesThatCannotBeReadAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                   "not a JSON object",
		`[]`:                  "not a JSON object",
		`"Label"`:             "not a JSON object",
		`{'Label':'a'}`:       "not a JSON object",
		`{} {}`:               "not a JSON object",
		"{\"To\":\"\xff":      "UTF-8",
		`{"CorrelationId":1}`: "CorrelationId", `{"ForcePersistence":"yes"}`: "ForcePersistence", `{"Label":{}}`: "Label",
		`{"MessageId":7}`: "MessageId", `{"PartitionKey":[]}`: "PartitionKey", `{"ReplyTo":true}`: "ReplyTo",
		`{"ReplyToSessionId":0}`: "ReplyToSessionId", `{"SessionId":1.5}`: "SessionId", `{"To":1}`: "To",
		`{"ViaPartitionKey":1}`: "ViaPartitionKey", `{"ContentType":1}`: "ContentType",
		`{"ScheduledEnqueueTimeUtc":12}`: "ScheduledEnqueueTimeUtc", `{"ScheduledEnqueueTimeUtc":"soon"}`: "ScheduledEnqueueTimeUtc",
		`{"TimeToLive":"10"}`: "TimeToLive", `{"TimeToLive":0}`: "TimeToLive", `{"TimeToLive":-1}`: "TimeToLive", `{"TimeToLive":1e999}`: "TimeToLive",
		`{"TimeToLiveTimeSpan":40}`: "TimeToLiveTimeSpan", `{"TimeToLiveTimeSpan":"40"}`: "TimeToLiveTimeSpan", `{"TimeToLiveTimeSpan":"00:00:00"}`: "TimeToLive",
		`{"TimeToLive":1,"TimeToLiveTimeSpan":"00:00:01"}`: "both",
	} {
		_, err := parseBrokerProperties([]byte(text))
		if !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %v, want a bad request that names %q", text, err, want)
		}
	}
	h := http.Header{"Brokerproperties": {"{}", "{}"}}
	if _, err := brokerPropertiesOf(h); !errors.Is(err, ErrBadRequest) {
		t.Errorf("two headers = %v, want a bad request", err)
	}
	h = http.Header{"Brokerproperties": {""}}
	if _, err := brokerPropertiesOf(h); err != nil {
		t.Errorf("an empty header = %v, want that it sets nothing", err)
	}
}

func TestTheRulesForIDsAreKept(t *testing.T) {
	long, tooLong := strings.Repeat("é", maxID), strings.Repeat("é", maxID+1)
	for _, tt := range []struct {
		name string
		b    BrokerProperties
		want string // "" = it is fine
	}{
		{"as long as allowed", BrokerProperties{MessageID: long, SessionID: long, PartitionKey: long, ReplyToSessionID: long, ViaPartitionKey: long}, ""},
		{"message-id", BrokerProperties{MessageID: tooLong}, "MessageId"},
		{"session-id", BrokerProperties{SessionID: tooLong}, "SessionId"},
		{"partition key", BrokerProperties{PartitionKey: tooLong}, "PartitionKey"},
		{"via partition key", BrokerProperties{ViaPartitionKey: tooLong}, "ViaPartitionKey"},
		{"reply-to session-id", BrokerProperties{ReplyToSessionID: tooLong}, "ReplyToSessionId"},
		{"session-id and partition key differ", BrokerProperties{SessionID: "a", PartitionKey: "b"}, "differ"},
		{"partition key alone", BrokerProperties{PartitionKey: "b"}, ""},
	} {
		err := tt.b.check()
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: check = %v, want nil", tt.name, err)
			}
		} else if !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: check = %v, want a bad request that names %q", tt.name, err, tt.want)
		}
	}
}
