// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"overdue/internal/httpclient"
)

func TestAHeartbeatFollowsNoRedirect(t *testing.T) {
	var led atomic.Int32
	internal := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	defer internal.Close()
	s := httptest.NewServer(http.RedirectHandler(internal.URL, http.StatusFound))
	defer s.Close()
	err := beat(t.Context(), httpclient.New(nil, heartbeatTimeout), s.URL+"/secret")
	want := strings.TrimPrefix(s.URL, "http://") + " answered 302 Found, and redirects are never followed"
	if led.Load() != 0 || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
		t.Errorf("beat = %v, and %d requests were led elsewhere; want an error with %q, and none", err, led.Load(), want)
	}
}
