// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
)

// A controlScene is a broker with its control handler.
type controlScene struct {
	*testing.T
	broker  *broker.Broker
	handler http.Handler
}

func setupControl(t *testing.T) *controlScene {
	t.Helper()
	b, err := broker.New(broker.Config{
		Queues: []broker.QueueConfig{{Name: "q", DeadLetteringOnMessageExpiration: true}},
		Topics: []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "t"},
			Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return &controlScene{t, b, newControl(Config{Broker: b})}
}

// ask sends a request and wants this status. It returns the answer.
func (s *controlScene) ask(method, path, body string, status int) []byte {
	s.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body)))
	if w.Code != status {
		s.Fatalf("%s %s %s = %d %s, want %d", method, path, body, w.Code, w.Body, status)
	}
	return w.Body.Bytes()
}

// read is ask for JSON.
func read[T any](s *controlScene, method, path, body string) (v T) {
	s.Helper()
	d := json.NewDecoder(bytes.NewReader(s.ask(method, path, body, http.StatusOK)))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		s.Fatal(err)
	}
	return v
}

func (s *controlScene) send(path string, m *sdk.Message) error {
	s.Helper()
	e, err := s.broker.Default().Entity(path)
	if err != nil {
		s.Fatal(err)
	}
	encoded, err := m.MarshalBinary()
	if err != nil {
		s.Fatal(err)
	}
	if refusal := e.Send(encoded); refusal != nil {
		return refusal
	}
	return nil
}

func TestControlShowsWhatThereIs(t *testing.T) {
	s := setupControl(t)
	subject := "greeting"
	for _, path := range []string{"q", "t"} {
		if err := s.send(path, &sdk.Message{
			Properties:            &sdk.MessageProperties{MessageID: "one", Subject: &subject},
			ApplicationProperties: map[string]any{"n": int64(7), "s": "text"},
			Data:                  [][]byte{[]byte("hello")},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.send("q", &sdk.Message{Data: [][]byte{{0xff, 0xfe}}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range read[[]entityForm](s, "GET", "/_overdue/entities", "") {
		got = append(got, fmt.Sprintf("%s %s %d", e.Kind, e.Path, e.Active))
	}
	if diff := cmp.Diff([]string{"queue q 2", "topic t 0", "subscription t/Subscriptions/s 1"}, got); diff != "" {
		t.Errorf("entities (-want +got):\n%s", diff)
	}
	ms := read[[]messageForm](s, "GET", "/_overdue/messages/q?max=10", "")
	if len(ms) != 2 {
		t.Fatalf("%d messages, want 2", len(ms))
	}
	if m := ms[0]; m.MessageID != "one" || m.Subject != subject || m.Body != "hello" || m.SequenceNumber != 1 || m.State != "Active" ||
		m.ApplicationProperties["n"] != float64(7) || m.ApplicationProperties["s"] != "text" || m.ExpiresAt != nil {
		t.Errorf("first message = %+v", m)
	}
	if m := ms[1]; m.Body != "" || !bytes.Equal(m.BodyBytes, []byte{0xff, 0xfe}) {
		t.Errorf("second message = %+v, want its two bytes", m)
	}
	if ms := read[[]messageForm](s, "GET", "/_overdue/messages/q?from=2", ""); len(ms) != 1 {
		t.Errorf("from=2 gives %d messages, want 1", len(ms))
	}
	if ms := read[[]messageForm](s, "GET", "/_overdue/messages/T/subscriptions/S", ""); len(ms) != 1 {
		t.Errorf("the subscription has %d messages, want 1", len(ms))
	}
	if ms := read[[]messageForm](s, "GET", "/_overdue/messages/q/$DeadLetterQueue", ""); len(ms) != 0 {
		t.Errorf("the dead-letter queue has %d messages, want none", len(ms))
	}
	s.ask("GET", "/_overdue/messages/none", "", http.StatusNotFound)
	s.ask("GET", "/_overdue/messages/q?max=0", "", http.StatusBadRequest)
	s.ask("GET", "/_overdue/messages/q?from=x", "", http.StatusBadRequest)
	s.ask("GET", "/_overdue/nonsense", "", http.StatusNotFound)
}

func TestControlTravelsInTime(t *testing.T) {
	s := setupControl(t)
	if err := s.send("q", &sdk.Message{Header: &sdk.MessageHeader{TTL: time.Minute}, Data: [][]byte{nil}}); err != nil {
		t.Fatal(err)
	}
	if c := read[clockForm](s, "POST", "/_overdue/clock", `{"advance": "1h"}`); c.Offset != "1h0m0s" {
		t.Errorf("offset = %s, want an hour", c.Offset)
	}
	if c := read[clockForm](s, "POST", "/_overdue/clock", `{"advance": "-30m"}`); c.Offset != "30m0s" {
		t.Errorf("offset = %s, want half an hour", c.Offset)
	}
	if ahead := time.Until(s.broker.Default().Now()); ahead < 29*time.Minute || ahead > 30*time.Minute {
		t.Errorf("the clock is %v ahead, want half an hour", ahead)
	}
	if c := read[clockForm](s, "POST", "/_overdue/clock", `{"offset": "0s"}`); c.Offset != "0s" {
		t.Errorf("offset = %s, want none", c.Offset)
	}
	read[clockForm](s, "GET", "/_overdue/clock", "")
	for _, bad := range []string{"", "{}", `{"advance": "soon"}`, `{"advance": "1h", "offset": "1h"}`, `{"offset": "9999999h"}`, `{"back": "1h"}`} {
		s.ask("POST", "/_overdue/clock", bad, http.StatusBadRequest)
	}
}

func TestControlInjectsFaults(t *testing.T) {
	s := setupControl(t)
	message := &sdk.Message{Data: [][]byte{nil}}
	full := read[faultForm](s, "POST", "/_overdue/faults", `{"entity": "q", "operation": "send", "error": "full", "times": 3}`)
	busy := read[faultForm](s, "POST", "/_overdue/faults", `{"operation": "management", "error": "server-busy", "delay": "1s"}`)
	if all := read[[]faultForm](s, "GET", "/_overdue/faults", ""); len(all) != 2 || all[0] != full || all[1] != busy {
		t.Errorf("faults = %+v, want %+v and %+v", all, full, busy)
	}
	s.ask("DELETE", fmt.Sprintf("/_overdue/faults/%d", full.ID), "", http.StatusNoContent)
	s.ask("DELETE", fmt.Sprintf("/_overdue/faults/%d", full.ID), "", http.StatusBadRequest)
	s.ask("DELETE", "/_overdue/faults", "", http.StatusNoContent)
	if all := read[[]faultForm](s, "GET", "/_overdue/faults", ""); len(all) != 0 {
		t.Errorf("faults = %+v, want none", all)
	}
	for _, bad := range []string{
		"", `{"error": "server-bsy"}`, `{"operation": "think", "cut": true}`, `{"operation": "send"}`, `{"delay": "long"}`, `{"cut": true, "times": -1}`, `{"cutt": true}`,
	} {
		s.ask("POST", "/_overdue/faults", bad, http.StatusBadRequest)
	}
	if err := s.send("q", message); err != nil {
		t.Errorf("a send after all faults are gone = %v", err)
	}
}

func TestControlResets(t *testing.T) {
	s := setupControl(t)
	if err := s.send("q", &sdk.Message{Data: [][]byte{nil}}); err != nil {
		t.Fatal(err)
	}
	if err := s.broker.AddQueue(broker.QueueConfig{Name: "more"}); err != nil {
		t.Fatal(err)
	}
	read[faultForm](s, "POST", "/_overdue/faults", `{"cut": true}`)
	s.ask("POST", "/_overdue/reset", "", http.StatusNoContent)
	if all := read[[]entityForm](s, "GET", "/_overdue/entities", ""); len(all) != 3 || all[0].Path != "q" || all[0].Active != 0 {
		t.Errorf("entities = %+v, want q, t and its subscription, empty", all)
	}
	if all := read[[]faultForm](s, "GET", "/_overdue/faults", ""); len(all) != 0 {
		t.Errorf("faults = %+v, want none", all)
	}
	s.ask("POST", "/_overdue/detach/q", "", http.StatusNoContent)
	s.ask("POST", "/_overdue/detach/none", "", http.StatusNotFound)
}

func TestControlListsItself(t *testing.T) {
	s := setupControl(t)
	list := string(s.ask("GET", "/_overdue/", "", http.StatusOK))
	for _, known := range []string{"entities", "messages", "reset", "clock", "faults", "detach", "metrics", "config"} {
		if !strings.Contains(list, ControlPath+known) {
			t.Errorf("the list lacks %s:\n%s", known, list)
		}
	}
	if got := string(s.ask("GET", "/_overdue/nonsense", "", http.StatusNotFound)); !strings.HasPrefix(got, "There is no /_overdue/nonsense.") || !strings.HasSuffix(got, list) {
		t.Errorf("what does not exist is answered with %s, want the list", got)
	}
	// The body that the list shows is valid.
	for line := range strings.Lines(list) {
		if i := strings.Index(line, "{\""); strings.HasPrefix(line, "POST") && i >= 0 {
			body, _, _ := strings.Cut(line[i:], "}")
			s.ask("POST", strings.Fields(line)[1], body+"}", http.StatusOK)
		}
	}
}

func TestControlServesMetrics(t *testing.T) {
	s := setupControl(t)
	s.ask("GET", "/_overdue/metrics", "", http.StatusNotFound)
	s.handler = newControl(Config{
		Broker:  s.broker,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }),
	})
	if got := string(s.ask("GET", "/_overdue/metrics", "", http.StatusOK)); got != "metrics" {
		t.Errorf("the metrics are %q", got)
	}
}

func TestControlNamesANamespace(t *testing.T) {
	s := setupControl(t)
	for _, path := range []string{"entities", "config"} {
		if got := string(s.ask("GET", "/_overdue/"+path+"?namespace=t1", "", http.StatusBadRequest)); !strings.Contains(got, "--broker-isolate") {
			t.Errorf("%s of a namespace that there is not: %s, want how to have more", path, got)
		}
	}
	b, err := broker.New(broker.Config{Isolate: true, DefaultName: "main", Queues: []broker.QueueConfig{{Name: "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s = &controlScene{t, b, newControl(Config{Broker: b})}
	if err := s.send("q", &sdk.Message{Data: [][]byte{nil}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/_overdue/entities": 1, "/_overdue/entities?namespace=Main": 1, "/_overdue/entities?namespace=T1": 0, "/_overdue/entities?namespace=t1": 0} {
		if all := read[[]entityForm](s, "GET", path, ""); len(all) != 1 || all[0].Active != want {
			t.Errorf("GET %s = %+v, want q with %d messages", path, all, want)
		}
	}
	read[faultForm](s, "POST", "/_overdue/faults?namespace=t1", `{"operation": "send", "error": "full"}`)
	if err := s.send("q", &sdk.Message{Data: [][]byte{nil}}); err != nil {
		t.Errorf("a fault of another namespace hits: %v", err)
	}
	s.ask("GET", "/_overdue/entities?namespace="+strings.Repeat("a", 257), "", http.StatusBadRequest)
	s.ask("POST", "/_overdue/reset?namespace=t1", "", http.StatusNoContent)
	s.ask("DELETE", "/_overdue/messages?namespace=t1", "", http.StatusOK)
	if all := read[[]entityForm](s, "GET", "/_overdue/entities", ""); all[0].Active != 2 {
		t.Errorf("a reset and a purge of another namespace leave %d messages, want 2", all[0].Active)
	}
}
