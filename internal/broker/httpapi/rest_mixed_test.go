// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bufio"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"overdue/internal/broker"
	"overdue/internal/servicebus/rest"
)

func TestWhatIsSentOverHTTPIsReceivedByTheSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		_, receiver := sc.sdk("q")
		sc.post("/q/messages", "\x00\xff binary",
			"BrokerProperties", `{"CorrelationId":"c","Label":"l","MessageId":"m","PartitionKey":"s","ReplyTo":"r","ReplyToSessionId":"rs","SessionId":"s","TimeToLive":90.5,"To":"t"}`,
			"Content-Type", "text/x", "orderId", "7", "big", "8555111000", "ratio", "1.5", "yes", "true", "name", `"12345,ABC"`, "plain", "High", "at", `"Sun, 06 Nov 2033 08:49:37 GMT"`)
		got := sc.one(receiver)
		want := &azservicebus.ReceivedMessage{
			Body: []byte("\x00\xff binary"), ContentType: to.Ptr("text/x"), CorrelationID: to.Ptr("c"), Subject: to.Ptr("l"), MessageID: "m",
			PartitionKey: to.Ptr("s"), ReplyTo: to.Ptr("r"), ReplyToSessionID: to.Ptr("rs"), SessionID: to.Ptr("s"), TimeToLive: to.Ptr(90500 * time.Millisecond),
			To: to.Ptr("t"), DeliveryCount: 1, SequenceNumber: to.Ptr[int64](1), EnqueuedTime: to.Ptr(time.Now().UTC()), ExpiresAt: to.Ptr(time.Now().UTC().Add(90500 * time.Millisecond)),
			LockedUntil: to.Ptr(time.Now().UTC().Add(time.Minute)),
			ApplicationProperties: map[string]any{
				"orderId": int32(7), "big": int64(8555111000), "ratio": 1.5, "yes": true, "name": "12345,ABC", "plain": "High", "at": time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC),
			},
		}
		ignored := cmpopts.IgnoreFields(azservicebus.ReceivedMessage{}, "LockToken", "RawAMQPMessage")
		// net/http's client adds headers of its own, which are those of HTTP and no properties.
		if diff := cmp.Diff(want, got, ignored, cmpopts.IgnoreUnexported(azservicebus.ReceivedMessage{})); diff != "" {
			t.Errorf("message (-want +got):\n%s", diff)
		}
	})
}

func TestABatchIsReceivedByTheSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		_, receiver := sc.sdk("q")
		sc.post("/q/messages", `[{"Body":"a","BrokerProperties":{"Label":"M1","TimeToLiveTimeSpan":"0.00:00:40"}},
			{"Body":"b","UserProperties":{"Priority":"Low","Count":3,"Nothing":null}},{}]`, "Content-Type", batchOf)
		ms, err := receiver.ReceiveMessages(t.Context(), 3, nil)
		if err != nil || len(ms) != 3 {
			t.Fatalf("ReceiveMessages = %d messages, %v; want three", len(ms), err)
		}
		if string(ms[0].Body) != "a" || *ms[0].Subject != "M1" || *ms[0].TimeToLive != 40*time.Second {
			t.Errorf("the first is %+v", ms[0])
		}
		if diff := cmp.Diff(map[string]any{"Priority": "Low", "Count": int32(3), "Nothing": nil}, ms[1].ApplicationProperties); diff != "" || string(ms[1].Body) != "b" {
			t.Errorf("the second has the body %q, properties (-want +got):\n%s", ms[1].Body, diff)
		}
		if len(ms[2].Body) != 0 || len(ms[2].MessageID) != 32 || *ms[2].SequenceNumber != 3 {
			t.Errorf("the third is %+v", ms[2])
		}
	})
}

func TestAScheduledMessageWaitsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		at := time.Now().Add(20 * time.Second).UTC()
		sc.post("/q/messages", "a", "BrokerProperties", `{"ScheduledEnqueueTimeUtc":"`+at.Format(http.TimeFormat)+`"}`)
		begun := time.Now()
		a := sc.do("DELETE", "/q/messages/head?timeout=60", "")
		sc.want("receive", a, http.StatusOK, "a")
		if waited := time.Since(begun); waited != 20*time.Second {
			t.Errorf("waited %v, want 20s", waited)
		}
		if got := a.header.Get("BrokerProperties"); !strings.Contains(got, `"ScheduledEnqueueTimeUtc":"`+at.Format(http.TimeFormat)+`"`) {
			t.Errorf("BrokerProperties: %s, want the scheduled time", got)
		}
	})
}

// Everything that the SDK can send comes out over HTTP, in one form or another.
func TestWhatTheSDKSendsIsReceivedOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		sender, _ := sc.sdk("q")
		err := sender.SendMessage(t.Context(), &azservicebus.Message{
			Body: []byte("\x00\xff binary"), ContentType: to.Ptr("text/x"), CorrelationID: to.Ptr("c"), Subject: to.Ptr("grün"), MessageID: to.Ptr("m"),
			PartitionKey: to.Ptr("s"), ReplyTo: to.Ptr("r"), ReplyToSessionID: to.Ptr("rs"), SessionID: to.Ptr("s"), TimeToLive: to.Ptr(90 * time.Second), To: to.Ptr("t"),
			ApplicationProperties: map[string]any{
				"orderId": "x\"y", "i8": int8(-1), "i16": int16(2), "i32": int32(3), "i64": int64(math.MaxInt64), "u8": uint8(4), "u16": uint16(5), "u32": uint32(6),
				"u64": uint64(math.MaxUint64), "f32": float32(0.1), "f64": 1e100, "yes": true, "no": false, "at": time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC),
				"id": amqp.UUID{1, 2, 3}, "bytes": []byte{1, 2}, "symbol": amqp.Symbol("s"), "nothing": nil, "Content-Length": "5", "two words": "x", "line": "a\nb",
			},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := sc.ns.Net.Dial(t.Context(), restHost)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			_, _ = io.WriteString(conn, "DELETE /q/messages/head HTTP/1.0\r\nHost: "+restHost+"\r\n\r\n") // the answer shows it
		}()
		text, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		head, body, _ := strings.Cut(string(text), "\r\n\r\n")
		if body != "\x00\xff binary" {
			t.Errorf("the body is %q", body)
		}
		got := map[string]string{}
		for line := range strings.Lines(head) {
			name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ": ")
			got[name] = value // by the spelling on the wire
		}
		now := time.Now().UTC().Format(http.TimeFormat)
		want := map[string]string{
			"HTTP/1.0 200 OK": "", "Content-Length": "9", "Content-Type": "text/x", "Date": now, "Server": "Microsoft-HTTPAPI/2.0", "Strict-Transport-Security": "max-age=31536000",
			"BrokerProperties": `{"CorrelationId":"c","DeliveryCount":1,"EnqueuedSequenceNumber":0,"EnqueuedTimeUtc":"` + now + `","Label":"gr\u00fcn","MessageId":"m",` +
				`"PartitionKey":"s","ReplyTo":"r","ReplyToSessionId":"rs","SequenceNumber":1,"SessionId":"s","State":"Active","TimeToLive":90,"To":"t"}`,
			"orderId": `"x\"y"`, "i8": "-1", "i16": "2", "i32": "3", "i64": "9223372036854775807", "u8": "4", "u16": "5", "u32": "6", "u64": "18446744073709551615",
			"f32": "0.1", "f64": "1e+100", "yes": "true", "no": "false", "at": `"Sun, 06 Nov 2033 08:49:37 GMT"`, "id": `"01020300-0000-0000-0000-000000000000"`,
			"bytes": `"AQI="`, "symbol": `"s"`, "line": `"a\u000ab"`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("head of the answer (-want +got):\n%s", diff)
		}
	})
}

func TestEveryKindOfBodyIsReceivedOverHTTP(t *testing.T) {
	for _, tt := range []struct {
		name string
		body azservicebus.AMQPAnnotatedMessageBody
		want string
	}{
		{"data", azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("a")}}, "a"},
		{"data in sections", azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("a"), {}, []byte("bc")}}, "abc"},
		{"no data", azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{{}}}, ""},
		{"text", azservicebus.AMQPAnnotatedMessageBody{Value: "grün"}, "grün"},
		{"bytes", azservicebus.AMQPAnnotatedMessageBody{Value: []byte{0, 255}}, "\x00\xff"},
		{"number", azservicebus.AMQPAnnotatedMessageBody{Value: int64(-5)}, "-5"},
		{"fraction", azservicebus.AMQPAnnotatedMessageBody{Value: 1.5}, "1.5"},
		{"truth", azservicebus.AMQPAnnotatedMessageBody{Value: true}, "true"},
		{"instant", azservicebus.AMQPAnnotatedMessageBody{Value: time.Date(2033, 11, 6, 8, 49, 37, 0, time.UTC)}, "2033-11-06T08:49:37Z"},
		{"map", azservicebus.AMQPAnnotatedMessageBody{Value: map[string]any{"a\"": []any{int32(1), nil, "x", math.Inf(1), float32(0.1), []byte{1}}}}, `{"a\"":[1,null,"x","+Inf",0.1,"AQ=="]}`},
		{"sequence", azservicebus.AMQPAnnotatedMessageBody{Sequence: [][]any{{"a", uint64(1)}, {}, {true}}}, `["a",1,true]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := restSetup(t, restOptions{})
				sender, _ := sc.sdk("q")
				if err := sender.SendAMQPAnnotatedMessage(t.Context(), &azservicebus.AMQPAnnotatedMessage{Body: tt.body}, nil); err != nil {
					t.Fatal(err)
				}
				a := sc.do("POST", "/q/messages/head", "")
				if a.status != http.StatusCreated || a.body != tt.want {
					t.Errorf("status %d, body %q; want 201, %q", a.status, a.body, tt.want)
				}
				if got := a.header.Get("Content-Type"); got != rest.ErrorContentType {
					t.Errorf("Content-Type: %s, want %s for a message without one", got, rest.ErrorContentType)
				}
			})
		})
	}
}

// The SDK settles what was locked by it, HTTP what was locked over HTTP, and both
// see what became of it.
func TestDeadLettersAreReceivedOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		_, receiver := sc.sdk("q")
		sc.post("/q/messages", "a", "DeadLetterReason", "of the sender")
		err := receiver.DeadLetterMessage(t.Context(), sc.one(receiver), &azservicebus.DeadLetterOptions{
			Reason: to.Ptr("Unreadable"), ErrorDescription: to.Ptr("It is \"a\"."), PropertiesToModify: map[string]any{"tries": int32(2)}})
		if err != nil {
			t.Fatal(err)
		}
		a := sc.do("POST", "/q/$DeadLetterQueue/messages/head?timeout=0", "")
		sc.want("peek-lock", a, http.StatusCreated, "a")
		for name, want := range map[string]string{"DeadLetterReason": `"Unreadable"`, "DeadLetterErrorDescription": `"It is \"a\"."`, "Tries": "2"} {
			if got := a.header[http.CanonicalHeaderKey(name)]; len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q, want %s", name, got, want)
			}
		}
		if location := a.header.Get("Location"); !strings.Contains(location, "/q/$DeadLetterQueue/messages/1/") {
			t.Errorf("Location: %s, want one in the dead-letter queue", location)
		}
		sc.want("complete", sc.do("DELETE", a.header.Get("Location"), ""), http.StatusOK, "")
		sc.want("receive", sc.do("DELETE", "/q/$DeadLetterQueue/messages/head?timeout=0", ""), http.StatusNoContent, "")
	})
}

func TestSubscriptionsAreReceivedFromOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{}, func(c *broker.Config) {
			c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "a/topic"}, Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "s1"}}, {SubscriptionConfig: broker.SubscriptionConfig{Name: "s2"}}}}}
		})
		sc.post("/a/topic/messages", "a")
		for _, name := range []string{"s1", "S2"} {
			a := sc.do("POST", "/a/topic/Subscriptions/"+name+"/messages/head?timeout=0", "")
			sc.want("peek-lock", a, http.StatusCreated, "a")
			location := a.header.Get("Location")
			if !strings.Contains(location, "/a/topic/Subscriptions/"+name+"/messages/") {
				t.Errorf("Location: %s, want one in the subscription", location)
			}
			sc.want("renew", sc.do("POST", location, ""), http.StatusOK, "")
			sc.want("complete", sc.do("DELETE", location, ""), http.StatusOK, "")
		}
	})
}

// Names keep their case both ways on the way through HTTP alone.
func TestNamesOfPropertiesKeepTheirCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		conn, err := sc.ns.Net.Dial(t.Context(), restHost)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		go func() {
			_, _ = io.WriteString(conn, "POST /q/messages HTTP/1.1\r\nHost: "+restHost+"\r\norderId: 7\r\nORDER-id: x\r\nContent-Length: 1\r\n\r\na"+
				"DELETE /q/messages/head HTTP/1.0\r\nHost: "+restHost+"\r\n\r\n") // the answers show it
		}()
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("status %d, want 201", resp.StatusCode)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\r\norderId: 7\r\n", "\r\nORDER-id: \"x\"\r\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the answer is %q, want it to have %q", text, want)
			}
		}
	})
}
