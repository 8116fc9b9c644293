// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

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

// The server is real, so time is as well: the heart beats every millisecond, and nothing waits
// longer than for the next step.
func TestHeartbeatsStopWhileSomethingIsWrong(t *testing.T) {
	answers := make(chan int) // one for each request
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case status := <-answers:
			w.WriteHeader(status)
		case <-ctx.Done():
		}
	}))
	defer s.Close()
	verdicts := make(chan error) // what well returns
	well := func(context.Context) error {
		select {
		case err := <-verdicts:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	core, logs := observer.New(zap.InfoLevel)
	done := make(chan error, 1)
	go func() { done <- Heartbeat(ctx, s.URL+"/secret", time.Millisecond, well, zap.New(core)) }()

	verdicts <- nil
	answers <- http.StatusOK
	for range 3 {
		verdicts <- errors.New("not ready") // a request would block here, since nobody answers it
	}
	verdicts <- nil
	answers <- http.StatusInternalServerError // no change
	verdicts <- nil
	answers <- http.StatusNoContent
	verdicts <- nil // by now the answer has been read
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Heartbeat = %v, want nil", err)
	}
	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Message)
		if strings.Contains(e.Message+fmt.Sprint(e.ContextMap()), "secret") {
			t.Errorf("the log has the URL: %v", e)
		}
	}
	if diff := cmp.Diff([]string{"heartbeat stopped", "heartbeat resumed"}, got); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}

func TestTheErrorOfAHeartbeatDoesNotShowTheURL(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	for url, want := range map[string]string{
		gone.URL + "/secret":     "heartbeat: dial tcp ",
		refusing.URL + "/secret": "heartbeat: the service answered 404 Not Found",
		"http://secret\x7f/":     "heartbeat: the URL is invalid",
	} {
		err := beat(t.Context(), httpclient.New(nil, heartbeatTimeout), url)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("beat %s = %v, want an error that begins with %q, without the path", url, err, want)
		}
	}
}
