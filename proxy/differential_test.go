// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/internal/testing/brokertest"
)

// If a request over HTTP that reaches the namespace directly changes the messages of a queue, the
// proxy has taken it for that, or has refused it.
func FuzzURLsAreReadAsTheNamespaceReadsThem(f *testing.F) {
	const locked = "/orders/messages/1/" + matrixToken
	for _, target := range []string{
		"/orders/messages", "/ORDERS/Messages/", "/orders/messages//", "//orders/messages", "/orders%2Fmessages", "/orders/messages/head?timeout=0",
		"/orders/messages%2fhead?timeout=0", "/orders/Messages/Head/?timeout=0", "/x/../orders/messages", "/orders", "/orders/", locked, "/orders/messages/a%2fb/" + matrixToken,
		"/orders/$DeadLetterQueue/messages/head?timeout=0", "/orders/%24DeadLetterQueue/messages", "/orders;x/messages", "/or%64ers/messages", "/%2forders/messages",
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodGet} {
			f.Add(method, target)
		}
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") || strings.ContainsAny(target, " #\r\n") || len(target) > 1000 {
			return // no request line carries it
		}
		switch method {
		case http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodGet:
		default:
			return
		}
		r := httptest.NewRequest(method, "/", nil)
		r.URL = u
		q, refused := called(r)
		synctest.Test(t, func(t *testing.T) {
			sc := setupREST(t)
			sc.want(sc.post("/orders/messages", "a"), http.StatusCreated, "")
			transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return sc.ns.Net.Dial(ctx, namespaceName)
			}}
			defer func() {
				transport.CloseIdleConnections()
				time.Sleep(time.Second) // net/http lingers over a connection that it closes
			}()
			out, err := http.NewRequestWithContext(t.Context(), method, "http://"+namespaceName+"/", nil)
			sc.must(err)
			out.URL.Opaque = "//" + namespaceName + target
			resp, err := transport.RoundTrip(out)
			if err != nil {
				return // net/http does not let it through
			}
			_, err = io.Copy(io.Discard, resp.Body)
			sc.must(err)
			sc.must(resp.Body.Close())
			if resp.StatusCode >= 300 {
				return // nothing was done
			}
			about := refused == nil && strings.EqualFold(q.Address.Entity(), "orders") && q.Address.SubQueue == address.Main
			queue, exists := sc.ns.Broker.Queue("orders")
			n := 0
			if exists {
				n = len(brokertest.Seen(queue.Peek(nil, 0, 10)))
			}
			switch {
			case !exists && refused == nil && (!about || q.Call != rights.Administer):
				t.Errorf("%s %s deletes the queue, and the proxy takes it for %+v, %v", method, target, q, refused)
			case exists && n > 1 && refused == nil && (!about || q.Call != rights.SendMessages):
				t.Errorf("%s %s is a send, and the proxy takes it for %+v", method, target, q)
			case exists && n < 1 && refused == nil && (!about || q.Call != rights.ReceiveAndDelete):
				t.Errorf("%s %s takes a message, and the proxy takes it for %+v", method, target, q)
			case exists && method == http.MethodPost && resp.StatusCode == http.StatusCreated && n == 1 && refused == nil && q.Call != rights.PeekLock:
				t.Errorf("%s %s locks a message, and the proxy takes it for %+v", method, target, q)
			}
		})
	})
}
