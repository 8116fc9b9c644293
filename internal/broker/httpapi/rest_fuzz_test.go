// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

// fuzzBroker is a broker without clients, with the queue "q".
func fuzzBroker(f *testing.F) *broker.Namespace {
	f.Helper()
	b, err := broker.New(broker.Config{Queues: []broker.QueueConfig{{Name: "q"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := b.Close(); err != nil {
			f.Error(err)
		}
	})
	return b.Default()
}

// checkThrough sends messages through the broker, and checks that they come out as
// they went in. The broker may refuse one only for what it says.
func checkThrough(t *testing.T, ns *broker.Namespace, ms []*rest.Message) {
	t.Helper()
	e, err := ns.Entity("q")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		m.Broker.ScheduledEnqueueTime = time.Time{} // it would not come out yet
		encoded, err := Encode(m)
		if err != nil {
			t.Fatalf("encode = %v", err)
		}
		if refusal := e.Send(encoded); refusal != nil {
			if status := refusalFor(refusal).status; status >= 500 {
				t.Errorf("Send of %+v = %v, which is status %d", m, refusal, status)
			}
			continue
		}
		c := e.Queue().NewConsumer(queue.ReceiveAndDelete)
		c.AddCredit(1)
		ds, _, _ := c.Take(nil)
		c.Close()
		if len(ds) != 1 {
			t.Fatalf("Take = %d deliveries, want one", len(ds))
		}
		out, err := show(&ds[0].View)
		if err != nil {
			t.Fatalf("show = %v", err)
		}
		want := m.Broker
		want.ContentType = asText(want.ContentType)
		if want.MessageID == "" { // the service makes one up
			if want.MessageID = out.broker.MessageID; len(want.MessageID) != 32 {
				t.Errorf("message-id %q of a message without one, want 32 digits", want.MessageID)
			}
		}
		if diff := cmp.Diff(want, out.broker); diff != "" || !bytes.Equal(m.Body, out.body) {
			t.Errorf("body %q, want %q; broker properties (-want +got):\n%s", out.body, m.Body, diff)
		}
		wantCustom := map[string]any{}
		for name, v := range m.Properties {
			if at, ok := v.(time.Time); ok {
				v = at.Truncate(time.Millisecond) // as AMQP has it
			}
			wantCustom[name] = v
		}
		gotCustom := map[string]any{}
		for _, p := range out.properties {
			if at, ok := p.value.(string); ok && wantCustom[p.name] != p.value {
				if want, isTime := wantCustom[p.name].(time.Time); isTime && want.Format(time.RFC3339Nano) == at {
					p.value = want // of a year that a header cannot say
				}
			}
			gotCustom[p.name] = p.value
		}
		if diff := cmp.Diff(wantCustom, gotCustom); diff != "" {
			t.Errorf("custom properties (-want +got):\n%s", diff)
		}
		w := httptest.NewRecorder()
		if err := out.write(w, http.StatusOK); err != nil {
			t.Errorf("write = %v", err)
		}
		if err := w.Result().Header.Write(&bytes.Buffer{}); err != nil {
			t.Errorf("the head of the answer cannot be written: %v", err)
		}
	}
}

// asText is s as text of AMQP carries it.
func asText(s string) string {
	r := amqp.NewReader(amqp.AppendString(nil, s))
	return r.String()
}

func FuzzSendOverREST(f *testing.F) {
	ns := fuzzBroker(f)
	f.Add(`{"CorrelationId":"c","Label":"l","MessageId":"m","SessionId":"s","PartitionKey":"s","TimeToLive":10.5}`, "text/plain", "Priority", `"High"`, []byte("hello"))
	f.Add(`{"ScheduledEnqueueTimeUtc":"2033-11-06T08:49:37Z","To":"ü"}`, "ü", "at", "0001-01-01T00:00:00Z", []byte{0xff})
	f.Add(`{}`, "", "Content-Length", "9223372036854775808", []byte(nil))
	f.Fuzz(func(t *testing.T, properties, kind, name, value string, body []byte) {
		h := http.Header{"Brokerproperties": {properties}, "Content-Type": {kind}}
		if !validName(name) {
			return // net/http does not let it in
		}
		h.Add(name, value)
		ms, err := rest.ParseSingle(h, body)
		if err != nil {
			if status := refusalFor(err).status; status != http.StatusBadRequest {
				t.Errorf("ParseSingle = %v, which is status %d", err, status)
			}
			return
		}
		checkThrough(t, ns, ms)
	})
}

// validName reports whether name is a token.
func validName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) })
}

func FuzzSendBatchOverREST(f *testing.F) {
	ns := fuzzBroker(f)
	f.Add([]byte(`[{"Body":"a","BrokerProperties":{"TimeToLiveTimeSpan":"00:00:40"},"UserProperties":{"a":1,"b":"c","d":null,"e":true,"f":1.5}}]`))
	f.Add([]byte(`[{},{"UserProperties":{"":"\u0000","DeadLetterReason":"x","DeadLetterErrorDescription":7}}]`))
	f.Add([]byte(`[{"Body":"\ud800","BrokerProperties":{"MessageId":"\u0000","Label":"\n"}}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ms, err := rest.ParseBatch(body)
		if err != nil {
			if status := refusalFor(err).status; status != http.StatusBadRequest && status != http.StatusForbidden {
				t.Errorf("ParseBatch = %v, which is status %d", err, status)
			}
			return
		}
		checkThrough(t, ns, ms[:min(len(ms), 10)])
	})
}

func FuzzPathsOfREST(f *testing.F) {
	for _, path := range []string{"/q/messages", "/a%2Fb/messages/head/", "/t/subscriptions/s/$DeadLetterQueue/messages/1/" + noToken, "/messages/messages/messages/head", "//", "/q/messages/%2F/" + noToken} {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			f.Add(method, path)
		}
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || !slices.Contains([]string{"GET", "POST", "PUT", "DELETE"}, method) {
			return // net/http does not let it in
		}
		r := &http.Request{Method: method, URL: u, Host: "h"}
		target, ok := targetOf(r)
		if !ok {
			return
		}
		if target.err != nil {
			if !errors.Is(target.err, rest.ErrBadRequest) {
				t.Errorf("%s %q: %v, want a bad request", method, path, target.err)
			}
			return
		}
		if said := strings.ToLower(strings.Trim(u.Path, "/")); target.need.Path == "" || !strings.HasPrefix(said, strings.ToLower(target.need.Path)) {
			t.Errorf("%s %q is for the entity %q", method, path, target.need.Path)
		}
		if target.call == rights.PeekLock || target.call == rights.ReceiveAndDelete {
			location := locationOf(r, 1, noToken)
			at, err := url.Parse(location)
			if err != nil {
				t.Fatalf("%s %q is settled at %q: %v", method, path, location, err)
			}
			if settled, ok := targetOf(&http.Request{Method: http.MethodDelete, URL: at}); !ok || settled.need.Path != target.need.Path {
				t.Errorf("%s %q locks in %q, and %q settles in %q", method, path, target.need.Path, location, settled.need.Path)
			}
		}
	})
}
