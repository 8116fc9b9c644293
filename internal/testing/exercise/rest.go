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
func (s *scene) callREST(method, path, body string, headers ...string) restAnswer {
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
		name, key := s.key()
		r.Header.Set("Authorization", sas.Make(name, key, s.field("Endpoint"), time.Now().Add(time.Hour)))
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
func (s *scene) wantAnswer(what string, a restAnswer, want ...int) {
	s.Helper()
	if !slices.Contains(want, a.status) {
		s.Fatalf("%s: status = %d %s, want %v", what, a.status, a.body, want)
	}
}

func (s *scene) restQueue() string { return "/" + s.queue + "/messages" }

// restLock locks the next message.
func (s *scene) restLock() restAnswer {
	s.Helper()
	a := s.callREST(http.MethodPost, s.restQueue()+"/head?timeout=5", "")
	s.wantAnswer("peek-lock", a, http.StatusCreated)
	return a
}

func restSends(s *scene) {
	a := s.callREST(http.MethodPost, s.restQueue(), "hello", "Content-Type", "text/plain",
		"BrokerProperties", `{"Label":"M1","MessageId":"id","CorrelationId":"c","TimeToLive":600}`, "Priority", `"High"`, "Count", "7")
	s.wantAnswer("send", a, http.StatusCreated)
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
	a := s.callREST(http.MethodPost, s.restQueue(),
		`[{"Body":"first","BrokerProperties":{"Label":"M1","TimeToLiveTimeSpan":"0.00:10:00"}},{"Body":"second","UserProperties":{"Priority":"Low"}}]`,
		"Content-Type", "application/vnd.microsoft.servicebus.json")
	s.wantAnswer("send", a, http.StatusCreated)
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
	a := s.restLock()
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
	s.wantAnswer("complete", s.callREST(http.MethodDelete, a.location, ""), http.StatusOK)
	a = s.callREST(http.MethodDelete, s.restQueue()+"/head?timeout=5", "")
	s.wantAnswer("receive and delete", a, http.StatusOK)
	if a.body != "b" || a.location != "" || a.broker["LockToken"] != nil {
		s.Errorf("body %q, location %q, BrokerProperties %v; want the other message, without a lock", a.body, a.location, a.broker)
	}
	s.wantBodies("left", s.peek(s.receiver()))
}

func restUnlocks(s *scene) {
	s.text("a", "b")
	first := s.restLock()
	s.wantAnswer("unlock", s.callREST(http.MethodPut, first.location, ""), http.StatusOK)
	again := s.restLock()
	if again.body != "a" || again.broker["LockToken"] == first.broker["LockToken"] {
		s.Errorf("body %q under the token %v, want the first message under another than %v", again.body, again.broker["LockToken"], first.broker["LockToken"])
	}
	s.wantAnswer("complete by the lock that is no more", s.callREST(http.MethodDelete, first.location, ""), http.StatusNotFound, http.StatusGone)
	s.wantAnswer("complete", s.callREST(http.MethodDelete, again.location, ""), http.StatusOK)
}

func restRenews(s *scene) {
	s.text("a")
	a := s.restLock()
	most := s.target.LockDuration * 2 / 3
	for range 2 {
		s.target.Wait(most)
		s.wantAnswer("renew", s.callREST(http.MethodPost, a.location, ""), http.StatusOK)
	}
	s.target.Wait(most)
	s.wantAnswer("complete", s.callREST(http.MethodDelete, a.location, ""), http.StatusOK)
}

func restLapses(s *scene) {
	s.text("a")
	a := s.restLock()
	s.lapse()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		s.wantAnswer(method+" of a lock that has lapsed", s.callREST(method, a.location, ""), http.StatusNotFound, http.StatusGone)
	}
	s.wantCount("after the lock lapsed", s.one(s.receiver()), 2)
}

func restWaits(s *scene) {
	s.wantAnswer("peek-lock", s.callREST(http.MethodPost, s.restQueue()+"/head?timeout=1", ""), http.StatusNoContent)
	s.wantAnswer("receive and delete", s.callREST(http.MethodDelete, s.restQueue()+"/head?timeout=1", ""), http.StatusNoContent)
}

func restDeadLetters(s *scene) {
	s.text("a")
	r := s.receiver()
	s.must(r.DeadLetterMessage(s.ctx, s.one(r), &azservicebus.DeadLetterOptions{Reason: to.Ptr("Unreadable")}))
	dead := "/" + s.queue + "/$DeadLetterQueue/messages/head?timeout=5"
	a := s.callREST(http.MethodPost, dead, "")
	s.wantAnswer("peek-lock", a, http.StatusCreated)
	if got := a.header.Get("DeadLetterReason"); a.body != "a" || got != `"Unreadable"` {
		s.Errorf("body %q, DeadLetterReason: %s; want the message and its reason", a.body, got)
	}
	s.wantAnswer("complete", s.callREST(http.MethodDelete, a.location, ""), http.StatusOK)
	s.wantBodies("dead letters left", s.peek(s.deadLetters()))
}

func restMissing(s *scene) {
	gone := []int{http.StatusGone, http.StatusNotFound}
	s.wantAnswer("send", s.callREST(http.MethodPost, "/no-such-queue/messages", "a"), gone...)
	s.wantAnswer("peek-lock", s.callREST(http.MethodPost, "/no-such-queue/messages/head?timeout=1", ""), gone...)
	s.wantAnswer("complete", s.callREST(http.MethodDelete, "/no-such-queue/messages/1/7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547", ""), gone...)
}

func restSessions(s *scene) {
	s.wantAnswer("send", s.callREST(http.MethodPost, s.restQueue(), "a", "BrokerProperties", `{"SessionId":"s"}`), http.StatusCreated)
	s.wantAnswer("send without a session", s.callREST(http.MethodPost, s.restQueue(), "a"), http.StatusBadRequest)
	s.wantAnswer("peek-lock", s.callREST(http.MethodPost, s.restQueue()+"/head?timeout=1", ""), http.StatusBadRequest)
}

func restRefuses(s *scene) {
	s.wantAnswer("no JSON", s.callREST(http.MethodPost, s.restQueue(), "a", "BrokerProperties", "{"), http.StatusBadRequest)
	s.wantAnswer("no batch", s.callREST(http.MethodPost, s.restQueue(), "{", "Content-Type", "application/vnd.microsoft.servicebus.json"), http.StatusBadRequest)
	s.wantAnswer("no timeout", s.callREST(http.MethodPost, s.restQueue()+"/head?timeout=soon", ""), http.StatusBadRequest)
}
