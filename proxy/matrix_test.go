// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/sas"
)

const matrixToken = "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"

// Paths of requests over HTTP, with the right that each method needs: "" = it is in no document.
var matrixPaths = []struct {
	path      string
	get, post string
	put, del  string
}{
	{"/orders/messages", "manage", "send", "manage", "manage"}, // but for a POST, of a queue of that name
	{"/orders/messages/head", "manage", "listen", "manage", "listen"},
	{"/orders/messages/1/" + matrixToken, "manage", "listen", "listen", "listen"},
	{"/orders/messages/1/nonsense", "manage", "listen", "manage", "manage"},
	{"/orders", "manage", "", "manage", "manage"},
	{"/orders/Subscriptions", "manage", "", "manage", ""},
	{"/orders/Subscriptions/s", "manage", "", "manage", "manage"},
	{"/orders/Subscriptions/s/messages", "manage", "", "", ""},
	{"/orders/Subscriptions/s/messages/head", "manage", "listen", "", "listen"},
	{"/orders/Subscriptions/s/Rules", "manage", "", "manage", ""},
	{"/orders/Subscriptions/s/Rules/r", "manage", "", "manage", "manage"},
	{"/orders/$DeadLetterQueue/messages", "manage", "", "", ""},
	{"/orders/$DeadLetterQueue/messages/head", "manage", "listen", "", "listen"},
	{"/orders/$Transfer/$DeadLetterQueue/messages/1/" + matrixToken, "manage", "listen", "listen", "listen"},
	{"/orders/$management/messages", "manage", "", "", ""},
	{"/orders/$management", "manage", "", "", ""},
	{"/$cbs/messages", "manage", "", "", ""},
	{"/orders/$nothing/messages", "manage", "", "", ""},
}

var matrixURLs = []struct {
	name  string
	of    func(string) string
	plain bool
}{
	{"bare", func(p string) string { return p }, true},
	{"slash behind", func(p string) string { return p + "/" }, true},
	{"capitals", strings.ToUpper, true},
	{"a query", func(p string) string { return p + "?timeout=0&api-version=2021-05" }, true},
	{"escaped dollar signs", func(p string) string { return strings.ReplaceAll(p, "$", "%24") }, true},
	{"an escaped slash", func(p string) string { return "/eu%2f" + p[1:] }, true},
	{"two slashes behind", func(p string) string { return p + "//" }, false},
	{"two slashes in front", func(p string) string { return "/" + p }, false},
	{"two slashes within", func(p string) string { return strings.Replace(p, "orders/", "orders//", 1) }, false},
	{"dots", func(p string) string { return "/x/.." + p }, false},
	{"escaped dots", func(p string) string { return "/x/%2e%2e" + p }, false},
	{"an escaped letter", func(p string) string { return "/%6frders/x" + p }, false},
	{"escaped twice", func(p string) string { return "/eu%252f" + p[1:] }, false},
	{"a backslash", func(p string) string { return "/x%5c" + p[1:] }, false},
	{"a semicolon", func(p string) string { return "/x;y" + p }, false},
	{"a zero", func(p string) string { return "/x%00" + p }, false},
}

// Which request needs which right is written down here, from the documents of the API and not from
// the table. A request that is not plain is refused to everybody.
func TestEveryRequestOverHTTPNeedsWhatTheMatrixSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := []sas.Key{
			{Name: "listener", Value: "secret-of-listener", Rights: sas.Listen}, {Name: "sender", Value: "secret-of-sender", Rights: sas.Send},
			{Name: "manager", Value: "secret-of-manager", Rights: sas.All}, {Name: "stranger", Value: "secret-of-stranger", Rights: sas.Send | sas.Listen, Entity: "other"},
		}
		may := map[string]string{"none": "", "listener": "listen", "sender": "send", "manager": "send listen manage", "stranger": ""}
		sc := setup(t, withKeys(keys...))
		tokens := map[string]string{"none": ""}
		for _, k := range keys {
			tokens[k.Name] = sas.Make(k.Name, k.Value, "https://h/", time.Now().Add(time.Hour))
		}
		tried, let := 0, 0
		for _, p := range matrixPaths {
			for method, right := range map[string]string{
				http.MethodGet: p.get, http.MethodHead: p.get, http.MethodPost: p.post, http.MethodPut: p.put, http.MethodDelete: p.del, http.MethodPatch: "", "MERGE": "",
			} {
				for _, spelling := range matrixURLs {
					if spelling.name != "bare" && spelling.of(p.path) == p.path {
						continue // there is nothing to write in another way
					}
					for key, rights := range may {
						target, err := url.ParseRequestURI(spelling.of(p.path))
						if err != nil {
							t.Fatal(err)
						}
						tried++
						r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
						r.URL = target
						if tokens[key] != "" {
							r.Header.Set("Authorization", tokens[key])
						}
						q, err := called(r)
						got := "refused"
						if reads := method == http.MethodGet || method == http.MethodHead; errors.Is(err, errNowhere) != (err != nil && reads) {
							t.Errorf("%s %s: %v, want that what is read and has no name is nowhere", method, target, err)
						}
						if err == nil {
							got = "denied"
							if sc.proxy.authorize(r, &q) == nil {
								got = "let in"
								let++
							}
						}
						want := "denied"
						switch {
						case right == "" || !spelling.plain:
							want = "refused"
						case strings.Contains(rights, right):
							want = "let in"
						}
						if got != want {
							t.Errorf("%s %s with the key %s: %s (%v), want %s", method, target, key, got, err, want)
						}
					}
				}
			}
		}
		t.Logf("%d requests tried, %d let in", tried, let)
		if tried < 9000 || let < 300 {
			t.Errorf("%d requests tried and %d let in, want the whole matrix", tried, let)
		}
	})
}
