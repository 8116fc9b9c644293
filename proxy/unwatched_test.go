// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/servicebus/rest"
)

// However a send over HTTP is written: it is watched, or it is refused and nothing is in the queue.
func TestNoSpellingOfASendOverHTTPGoesUnwatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t)
		browser := sc.browser()
		for _, spelling := range []string{
			"/orders/messages", "/orders/Messages", "/ORDERS/MESSAGES", "/orders/messages/", "/orders/messages//", "/orders//messages",
			"//orders/messages", "/orders/./messages", "/x/../orders/messages", "/orders/%6dessages", "/orders/message%73", "/orders%2Fmessages",
			"/%6frders/messages", "/orders/messages%2F", "/orders%2f/messages", "/orders/mes%EF%BC%93ages", "/orders/messages;x", "/orders;x/messages",
			"/orders/messages?timeout=60", "/orders/messages/?api-version=2021-05", "/orders/messages%3Ftimeout=60", "/orders\\messages", "/orders/messages%00",
			"/orders/messages#head", "/ORDERS/meſſages", "/orders/messages/%2e", "/orders/messages/head/..",
		} {
			before, watched := len(sc.messages("orders")), sc.watchedMessages()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+endpointName+"/", nil)
			sc.must(err)
			r.URL.Opaque = "//" + endpointName + spelling // as it stands
			r.Header["BrokerProperties"] = []string{`{"TimeToLive":3600}`}
			resp, err := browser.Do(r)
			sc.must(err)
			sc.must(resp.Body.Close())
			came, covered := len(sc.messages("orders"))-before, sc.watchedMessages()-watched
			switch accepted := resp.StatusCode == http.StatusCreated; {
			case came != covered:
				t.Errorf("%s = %d: %d messages came, and %d are watched", spelling, resp.StatusCode, came, covered)
			case accepted != (came == 1):
				t.Errorf("%s = %d, and %d messages came", spelling, resp.StatusCode, came)
			}
		}
		if n := len(sc.messages("orders")); n < 5 {
			t.Errorf("%d spellings are understood, want those of clients in their right minds", n)
		}
	})
}

// watchedMessages counts the messages that companions name.
func (sc *scene) watchedMessages() (n int) {
	sc.Helper()
	for _, c := range sc.companions() {
		n += len(c.References)
	}
	return n
}

// If a value is stated twice, one reader takes the first and another the second.
func TestWhatIsStatedTwiceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		w := sc.watch("orders/$management")
		message := sc.scheduled("m1", time.Now().Add(time.Hour), "30s")
		entry := amqp.Map{{Key: "message-id", Value: "m1"}, {Key: "message", Value: message}}
		const peek, schedule = "com.microsoft:peek-message", "com.microsoft:schedule-message"
		for name, c := range map[string]struct {
			properties amqp.Map
			body       any
		}{
			"the operation":                {amqp.Map{{Key: "operation", Value: schedule}, {Key: "operation", Value: peek}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
			"the operation, once a symbol": {amqp.Map{{Key: amqp.Symbol("operation"), Value: peek}, {Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
			"the same operation":           {amqp.Map{{Key: "operation", Value: schedule}, {Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
			"the messages":                 {amqp.Map{{Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{}}, {Key: "messages", Value: amqp.List{entry}}}},
			"the message":                  {amqp.Map{{Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{append(entry, entry[1])}}}},
			"the messages, which are an array, of which the proxy reads none": {amqp.Map{{Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.Array{entry}}}},
		} {
			deliver(t, w, &relay.Delivery{Payload: encodedRequest(t, c.properties, c.body)}).wantSomeRefusal(name)
		}
		for _, sections := range map[string]amqp.Message{
			"a property":              {ApplicationProperties: mapOf(t, amqp.Map{{Key: "overdue-within", Value: "1h"}, {Key: "overdue-within", Value: "2h"}})},
			"a message annotation":    {MessageAnnotations: mapOf(t, amqp.Map{{Key: amqp.Symbol("x-opt-a"), Value: "1"}, {Key: amqp.Symbol("x-opt-a"), Value: "2"}})},
			"a delivery annotation":   {DeliveryAnnotations: mapOf(t, amqp.Map{{Key: amqp.Symbol("a"), Value: "1"}, {Key: "a", Value: "2"}})},
			"a property, as a symbol": {ApplicationProperties: mapOf(t, amqp.Map{{Key: "a", Value: "1"}, {Key: amqp.Symbol("a"), Value: "2"}})},
		} {
			sections.Body = amqp.AppendData(nil, []byte("hello"))
			deliver(t, sc.watch("orders"), &relay.Delivery{Payload: sections.Append(nil)}).wantRefused("amqp:not-allowed", "more than once")
		}
		for name, values := range map[string][2]string{
			"BrokerProperties": {`{"TimeToLive":3600}`, `{"TimeToLive":3600}`}, "Overdue-Within": {"1h", "2h"}, "order-id": {"1", "2"},
		} {
			sc.want(sc.post("/orders/messages", "a", name, values[0], name, values[1]), http.StatusBadRequest, "is stated 2 times")
		}
		sc.want(sc.post("/orders/messages?timeout=5&timeout=60", "a"), http.StatusBadRequest, "stated more than once")
		sc.want(sc.post("/orders/messages", "a", "BrokerProperties", `{"TimeToLive":3600,"TimeToLive":7200}`), http.StatusBadRequest, "more than once")
		batch := sc.post("/orders/messages", `[{"Body":"a","Body":"b"}]`, "Content-Type", rest.BatchContentType)
		sc.want(batch, http.StatusBadRequest, "more than once")
		if held := sc.messages("orders"); len(held) != 0 {
			t.Errorf("orders holds %d messages, want none", len(held))
		}
	})
}

func (x *driven) wantSomeRefusal(what string) {
	x.Helper()
	if x.refused == nil {
		x.Errorf("%s, stated twice, is not refused", what)
	}
}

func mapOf(t *testing.T, m amqp.Map) amqp.Raw {
	t.Helper()
	raw, err := amqp.AppendValue(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// encodedRequest is a request whose maps may repeat keys, which no encoder of an SDK writes.
func encodedRequest(t *testing.T, properties amqp.Map, body any) []byte {
	t.Helper()
	value, err := amqp.AppendValue(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	p := amqp.Properties{MessageID: "request-1"}
	m := amqp.Message{
		Properties: p.Raw(), ApplicationProperties: mapOf(t, properties),
		Body: amqp.AppendValueSection(nil, value),
	}
	return m.Append(nil)
}
