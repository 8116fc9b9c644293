// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
)

// Over HTTP: the REST runtime API. Tests compare the status of answers
// alone: the service's sentences change.
var restSpecs = []spec{
	{name: "what is sent over HTTP is received over AMQP", check: restSends},
	{name: "a batch is sent over HTTP", check: restSendsBatches},
	{name: "what is sent over AMQP is received over HTTP", check: restReceives},
	{name: "a message that was unlocked comes again", check: restUnlocks},
	{name: "a lock is renewed over HTTP", check: restRenews},
	{name: "a lock that has lapsed settles nothing", check: restLapses},
	{name: "an empty queue has no content", check: restWaits},
	{name: "dead letters are received over HTTP", check: restDeadLetters},
	{name: "an entity that is missing is gone", check: restMissing},
	{name: "sessions are not received over HTTP", queue: broker.QueueConfig{RequiresSession: true}, check: restSessions},
	{name: "what cannot be read is refused", check: restRefuses},
}

// A restAnswer is the answer to a request of the REST runtime API.
type restAnswer struct {
	status   int
	header   http.Header
	body     string
	location string
	broker   map[string]any // BrokerProperties
}

// callREST sends a request with headers, given as pairs. Where the namespace has no
// such API the case ends.
func (s restClient) call(method, path, body string, headers ...string) restAnswer {
	s.Helper()
	if s.target.HTTP == nil {
		s.Skip("the target has no endpoint for HTTP")
	}
	if strings.HasPrefix(path, "/") {
		path = "http://namespace" + path
	}
	r, err := http.NewRequestWithContext(s.ctx, method, path, strings.NewReader(body))
	s.must(err)
	if s.target.Secured {
		name, key := s.keys.key()
		r.Header.Set("Authorization", sas.Make(name, key, s.keys.field("Endpoint"), time.Now().Add(time.Hour)))
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]}
	}
	resp, err := s.target.HTTP(r)
	s.must(err)
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	s.must(resp.Body.Close())
	a := restAnswer{status: resp.StatusCode, header: resp.Header, body: string(text), location: resp.Header.Get("Location")}
	if properties := resp.Header.Get("BrokerProperties"); properties != "" {
		s.must(json.Unmarshal([]byte(properties), &a.broker))
	}
	return a
}

// wantAnswer checks the status of an answer, which may be one of several.
func (s restClient) wantAnswer(what string, a restAnswer, want ...int) {
	s.Helper()
	if !slices.Contains(want, a.status) {
		s.Fatalf("%s: status = %d %s, want %v", what, a.status, a.body, want)
	}
}

func (s restClient) messages() string { return "/" + s.queue + "/messages" }

// restLock locks the next message.
func (s restClient) lock() restAnswer {
	s.Helper()
	a := s.call(http.MethodPost, s.messages()+"/head?timeout=5", "")
	s.wantAnswer("peek-lock", a, http.StatusCreated)
	return a
}

func restSends(s *scene) {
	a := s.rest.call(http.MethodPost, s.rest.messages(), "hello", "Content-Type", "text/plain",
		"BrokerProperties", `{"Label":"M1","MessageId":"id","CorrelationId":"c","TimeToLive":600}`, "Priority", `"High"`, "Count", "7")
	s.rest.wantAnswer("send", a, http.StatusCreated)
	m := s.one(s.receiver())
	s.wantBodies("received", []*azservicebus.ReceivedMessage{m}, "hello")
	if m.MessageID != "id" || m.Subject == nil || *m.Subject != "M1" || m.CorrelationID == nil || *m.CorrelationID != "c" || m.ContentType == nil || *m.ContentType != "text/plain" {
		s.Errorf("message-id %q, subject %v, correlation-id %v, content type %v; want those that were sent", m.MessageID, m.Subject, m.CorrelationID, m.ContentType)
	}
	if m.TimeToLive == nil || *m.TimeToLive != 10*time.Minute {
		s.Errorf("time to live = %v, want 10m", m.TimeToLive)
	}
	// The names of headers have no case for most of what is between here and there.
	for name, v := range m.ApplicationProperties {
		switch strings.ToLower(name) {
		case "priority":
			if v != "High" {
				s.Errorf("Priority = %#v, want High", v)
			}
		case "count":
			if number, ok := asInt(v); !ok || number != 7 {
				s.Errorf("Count = %#v, want the number 7", v)
			}
		}
	}
	if len(m.ApplicationProperties) < 2 {
		s.Errorf("application properties = %v, want Priority and Count", m.ApplicationProperties)
	}
}

func asInt(v any) (int64, bool) {
	switch v := v.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return int64(v), v == float64(int64(v))
	}
	return 0, false
}

func restSendsBatches(s *scene) {
	a := s.rest.call(http.MethodPost, s.rest.messages(),
		`[{"Body":"first","BrokerProperties":{"Label":"M1","TimeToLiveTimeSpan":"0.00:10:00"}},{"Body":"second","UserProperties":{"Priority":"Low"}}]`,
		"Content-Type", "application/vnd.microsoft.servicebus.json")
	s.rest.wantAnswer("send", a, http.StatusCreated)
	ms := s.receive(s.receiver(), 2)
	s.wantBodies("received", ms, "first", "second")
	if ms[0].Subject == nil || *ms[0].Subject != "M1" || ms[1].ApplicationProperties["Priority"] != "Low" {
		s.Errorf("subject %v and properties %v, want M1 and Priority Low", ms[0].Subject, ms[1].ApplicationProperties)
	}
}

func restReceives(s *scene) {
	s.send(&azservicebus.Message{Body: []byte("a"), MessageID: to.Ptr("id"), Subject: to.Ptr("M1"), ContentType: to.Ptr("text/plain"),
		ApplicationProperties: map[string]any{"Priority": "High", "Count": int32(7), "Yes": true}})
	s.text("b")
	a := s.rest.lock()
	if a.body != "a" || a.broker["MessageId"] != "id" || a.broker["Label"] != "M1" || a.broker["State"] != "Active" || a.broker["DeliveryCount"] != 1.0 {
		s.Errorf("body %q, BrokerProperties %v; want those of the message", a.body, a.broker)
	}
	if a.broker["LockToken"] == nil || a.broker["LockedUntilUtc"] == nil || a.broker["SequenceNumber"] == nil || a.broker["EnqueuedTimeUtc"] == nil {
		s.Errorf("BrokerProperties %v, want the lock, the number and the time", a.broker)
	}
	for name, want := range map[string]string{"Content-Type": "text/plain", "Priority": `"High"`, "Count": "7", "Yes": "true"} {
		if got := a.header.Get(name); !strings.EqualFold(got, want) {
			s.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	s.rest.wantAnswer("complete", s.rest.call(http.MethodDelete, a.location, ""), http.StatusOK)
	a = s.rest.call(http.MethodDelete, s.rest.messages()+"/head?timeout=5", "")
	s.rest.wantAnswer("receive and delete", a, http.StatusOK)
	if a.body != "b" || a.location != "" || a.broker["LockToken"] != nil {
		s.Errorf("body %q, location %q, BrokerProperties %v; want the other message, without a lock", a.body, a.location, a.broker)
	}
	s.wantBodies("left", s.peek(s.receiver()))
}

func restUnlocks(s *scene) {
	s.text("a", "b")
	first := s.rest.lock()
	s.rest.wantAnswer("unlock", s.rest.call(http.MethodPut, first.location, ""), http.StatusOK)
	again := s.rest.lock()
	if again.body != "a" || again.broker["LockToken"] == first.broker["LockToken"] {
		s.Errorf("body %q under the token %v, want the first message under another than %v", again.body, again.broker["LockToken"], first.broker["LockToken"])
	}
	s.rest.wantAnswer("complete by the lock that is no more", s.rest.call(http.MethodDelete, first.location, ""), http.StatusNotFound, http.StatusGone)
	s.rest.wantAnswer("complete", s.rest.call(http.MethodDelete, again.location, ""), http.StatusOK)
}

func restRenews(s *scene) {
	s.text("a")
	a := s.rest.lock()
	most := s.target.LockDuration * 2 / 3
	for range 2 {
		s.target.Wait(most)
		s.rest.wantAnswer("renew", s.rest.call(http.MethodPost, a.location, ""), http.StatusOK)
	}
	s.target.Wait(most)
	s.rest.wantAnswer("complete", s.rest.call(http.MethodDelete, a.location, ""), http.StatusOK)
}

func restLapses(s *scene) {
	s.text("a")
	a := s.rest.lock()
	s.lapse()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		s.rest.wantAnswer(method+" of a lock that has lapsed", s.rest.call(method, a.location, ""), http.StatusNotFound, http.StatusGone)
	}
	s.wantCount("after the lock lapsed", s.one(s.receiver()), 2)
}

func restWaits(s *scene) {
	s.rest.wantAnswer("peek-lock", s.rest.call(http.MethodPost, s.rest.messages()+"/head?timeout=1", ""), http.StatusNoContent)
	s.rest.wantAnswer("receive and delete", s.rest.call(http.MethodDelete, s.rest.messages()+"/head?timeout=1", ""), http.StatusNoContent)
}

func restDeadLetters(s *scene) {
	s.text("a")
	r := s.receiver()
	s.must(r.DeadLetterMessage(s.ctx, s.one(r), &azservicebus.DeadLetterOptions{Reason: to.Ptr("Unreadable")}))
	dead := "/" + s.queue + "/$DeadLetterQueue/messages/head?timeout=5"
	a := s.rest.call(http.MethodPost, dead, "")
	s.rest.wantAnswer("peek-lock", a, http.StatusCreated)
	if got := a.header.Get("DeadLetterReason"); a.body != "a" || got != `"Unreadable"` {
		s.Errorf("body %q, DeadLetterReason: %s; want the message and its reason", a.body, got)
	}
	s.rest.wantAnswer("complete", s.rest.call(http.MethodDelete, a.location, ""), http.StatusOK)
	s.wantBodies("dead letters left", s.peek(s.deadLetters()))
}

func restMissing(s *scene) {
	gone := []int{http.StatusGone, http.StatusNotFound}
	s.rest.wantAnswer("send", s.rest.call(http.MethodPost, "/no-such-queue/messages", "a"), gone...)
	s.rest.wantAnswer("peek-lock", s.rest.call(http.MethodPost, "/no-such-queue/messages/head?timeout=1", ""), gone...)
	s.rest.wantAnswer("complete", s.rest.call(http.MethodDelete, "/no-such-queue/messages/1/7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547", ""), gone...)
}

func restSessions(s *scene) {
	s.rest.wantAnswer("send", s.rest.call(http.MethodPost, s.rest.messages(), "a", "BrokerProperties", `{"SessionId":"s"}`), http.StatusCreated)
	s.rest.wantAnswer("send without a session", s.rest.call(http.MethodPost, s.rest.messages(), "a"), http.StatusBadRequest)
	s.rest.wantAnswer("peek-lock", s.rest.call(http.MethodPost, s.rest.messages()+"/head?timeout=1", ""), http.StatusBadRequest)
}

func restRefuses(s *scene) {
	s.rest.wantAnswer("no JSON", s.rest.call(http.MethodPost, s.rest.messages(), "a", "BrokerProperties", "{"), http.StatusBadRequest)
	s.rest.wantAnswer("no batch", s.rest.call(http.MethodPost, s.rest.messages(), "{", "Content-Type", "application/vnd.microsoft.servicebus.json"), http.StatusBadRequest)
	s.rest.wantAnswer("no timeout", s.rest.call(http.MethodPost, s.rest.messages()+"/head?timeout=soon", ""), http.StatusBadRequest)
}
