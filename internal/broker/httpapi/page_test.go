// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"overdue/internal/broker"
)

// withPage gives the broker a page that says which request it got.
func withPage(c *Config) {
	c.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "page: %s %s", r.Method, r.URL.Path)
	})
}

func (sc *scene) askWith(method, path string, header map[string]string) (*http.Response, string) {
	sc.t.Helper()
	r, err := http.NewRequestWithContext(sc.t.Context(), method, "http://"+host+path, nil)
	if err != nil {
		sc.t.Fatal(err)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	response := sc.do(r)
	body, _ := io.ReadAll(response.Body) // a string
	return response, string(body)
}

func TestABrowserGetsThePageAndOthersTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupBroker(t, broker.Config{}, withPage)
		browser := map[string]string{"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
		for _, x := range []struct {
			path   string
			header map[string]string
			want   string
		}{
			{"/_overdue/", browser, "page: GET /_overdue/"},
			{"/_overdue/", nil, "Behind the protocol"},
			{"/_overdue/", map[string]string{"Accept": "*/*"}, "Behind the protocol"},
			{"/_overdue/entities", browser, "[]"},
			{"/_overdue/page/entity", nil, "page: GET /_overdue/page/entity"},
			{"/_overdue/nothing", browser, "There is no /_overdue/nothing"},
		} {
			if _, body := sc.askWith("GET", x.path, x.header); !strings.HasPrefix(body, x.want) {
				t.Errorf("GET %s with %v = %.80q, want %q", x.path, x.header, body, x.want)
			}
		}
		if r, _ := sc.askWith("GET", "/_overdue/", browser); r.Header.Get("Vary") != "Accept" {
			t.Errorf("Vary = %q, want Accept, since a cache has two answers to keep apart", r.Header.Get("Vary"))
		}
	})
}

// A person shows the name of a key and the key to the browser, which asks for them.
func TestAKeyOpensThePageInABrowser(t *testing.T) {
	basic := func(name, key string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+key))
	}
	synctest.Test(t, func(t *testing.T) {
		sc := setupBroker(t, withKeys(), withPage)
		for _, x := range []struct {
			authorization string
			status        int
			text          string
		}{
			{"", 401, "MissingToken: "},
			{basic("root", "root-key"), 200, "page: GET"},
			{basic("ROOT", "root-key"), 200, "page: GET"},
			{basic("root", "wrong"), 401, "InvalidKey: "},
			{basic("root", ""), 401, "InvalidKey: "},
			{basic("nobody", "root-key"), 401, "InvalidKey: "},
			{basic("both", "both-key"), 401, "'Manage' claim(s) are required"},
			{basic("own", "own-key"), 401, "InvalidKey: "}, // that of an entity
			{as("root", ""), 200, "page: GET"},
		} {
			header := map[string]string{}
			if x.authorization != "" {
				header["Authorization"] = x.authorization
			}
			r, body := sc.askWith("GET", "/_overdue/page/entity", header)
			if r.StatusCode != x.status || !strings.Contains(body, x.text) {
				t.Errorf("with %q: %d %s, want %d and %q", x.authorization, r.StatusCode, body, x.status, x.text)
			}
			if asks := strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Basic "); asks != (x.status == 401) {
				t.Errorf("with %q: WWW-Authenticate = %q", x.authorization, r.Header.Get("WWW-Authenticate"))
			}
		}
		if status, _ := sc.ask("GET", "/orders?api-version=2024-05", basic("root", "root-key")); status != 401 {
			t.Errorf("the administration API takes a key itself: %d", status)
		}
	})
}

// A browser that has a key sends it with what other sites make it send.
func TestOtherSitesChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, cfg := range map[string]broker.Config{"open": {}, "with keys": withKeys()} {
			sc := setupBroker(t, cfg, withPage)
			authorization := as("root", "")
			for _, path := range []string{"/_overdue/page/purge", "/_overdue/reset"} {
				for _, header := range []map[string]string{
					{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://other.example"},
				} {
					header["Authorization"] = authorization
					if r, _ := sc.askWith("POST", path, header); r.StatusCode != http.StatusForbidden {
						t.Errorf("%s: POST %s with %v = %d, want 403", name, path, header, r.StatusCode)
					}
				}
				header := map[string]string{"Authorization": authorization, "Sec-Fetch-Site": "same-origin"}
				if r, body := sc.askWith("POST", path, header); r.StatusCode >= 300 {
					t.Errorf("%s: POST %s of the page itself = %d: %s", name, path, r.StatusCode, body)
				}
			}
			if err := sc.server.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
