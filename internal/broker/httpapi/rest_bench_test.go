// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"overdue/internal/broker"
)

// BenchmarkREST is what the REST runtime API costs without a network: a send of 256
// bytes with properties, and with it a receive, or a lock and its completion.
func BenchmarkREST(b *testing.B) {
	br, err := broker.New(broker.Config{Queues: []broker.QueueConfig{{Name: "q"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := br.Close(); err != nil {
			b.Error(err)
		}
	})
	api := newREST(func(*http.Request) *broker.Namespace { return br.Default() }, restOptions{})
	body := strings.Repeat("x", 256)
	do := func(method, path, body string, want int) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if body != "" {
			r.Header.Set("BrokerProperties", `{"Label":"M1","TimeToLive":90}`)
			r.Header.Set("Orderid", "7")
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code != want {
			b.Fatalf("%s %s = %d %s, want %d", method, path, w.Code, w.Body, want)
		}
		return w
	}
	b.Run("send and receive", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			do("POST", "/q/messages", body, http.StatusCreated)
			do("DELETE", "/q/messages/head", "", http.StatusOK)
		}
	})
	b.Run("send, lock and complete", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			do("POST", "/q/messages", body, http.StatusCreated)
			w := do("POST", "/q/messages/head", "", http.StatusCreated)
			do("DELETE", w.Header().Get("Location"), "", http.StatusOK)
		}
	})
}
