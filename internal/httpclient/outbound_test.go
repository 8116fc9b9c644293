// SPDX-License-Identifier: Apache-2.0

package httpclient

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// scene has a server that redirects with a status, and one that nobody must be led to.
func scene(t *testing.T, status int) (from string, led *atomic.Int32) {
	t.Helper()
	led = &atomic.Int32{}
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	t.Cleanup(to.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to.URL+"/quitquitquit")
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, led
}

func TestNoClientFollowsARedirect(t *testing.T) {
	clients := map[string]func(method, url string) (*http.Response, error){
		"of ours": func(method, url string) (*http.Response, error) {
			r, err := http.NewRequest(method, url, strings.NewReader("{}"))
			if err != nil {
				return nil, err
			}
			return New(nil, time.Minute).Do(r)
		},
		// As libraries have them.
		"the default": func(method, url string) (*http.Response, error) {
			r, err := http.NewRequest(method, url, strings.NewReader("{}"))
			if err != nil {
				return nil, err
			}
			return http.DefaultClient.Do(r)
		},
		"without a transport": func(method, url string) (*http.Response, error) {
			r, err := http.NewRequest(method, url, strings.NewReader("{}"))
			if err != nil {
				return nil, err
			}
			return (&http.Client{}).Do(r)
		},
		"with a copy of the default transport": func(method, url string) (*http.Response, error) {
			r, err := http.NewRequest(method, url, strings.NewReader("{}"))
			if err != nil {
				return nil, err
			}
			return (&http.Client{Transport: Transport()}).Do(r)
		},
	}
	for name, do := range clients {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			for _, status := range []int{301, 302, 303, 307, 308} {
				from, led := scene(t, status)
				resp, err := do(method, from)
				if resp != nil {
					resp.Body.Close()
				}
				var refused *RedirectError
				if !errors.As(err, &refused) || led.Load() != 0 {
					t.Fatalf("%s: %s that is answered %d = %v, and %d requests went elsewhere; want a RedirectError and none", name, method, status, err, led.Load())
				}
				if want := strings.TrimPrefix(from, "http://"); refused.Host != want || !strings.HasSuffix(refused.Status, " "+http.StatusText(status)) {
					t.Errorf("%s: refused %+v, want the host %s and the status %d", name, refused, want, status)
				}
			}
		}
	}
}

// An answer that is no redirect is carried as ever.
func TestOtherAnswersPass(t *testing.T) {
	for _, status := range []int{200, 204, 300, 304, 307, 400, 503} { // 307 does not say where to
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		defer s.Close()
		resp, err := New(nil, 0).Get(s.URL)
		if err != nil {
			t.Fatalf("answer %d = %v, want it", status, err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("answer %d, want %d", resp.StatusCode, status)
		}
	}
}
