// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// Where the endpoint asks for keys, the canary brings a companion of its own.
func TestACanaryIsSentThroughTheEndpointOrWithACompanionOfItsOwn(t *testing.T) {
	for name, keys := range map[string]string{
		"without keys": "",
		"with keys":    "listen: {keys: [{name: app, key: s3cr3t-of-12, send: true}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := startTest(t, "canary: {queue: canaries, interval: 1h}\n"+keys)
			ns, err := connect.Parse(p.OwnConnectionString())
			if err != nil {
				t.Fatal(err)
			}
			links, _, err := ns.Links()
			if err != nil {
				t.Fatal(err)
			}
			s, err := scheduler.New(scheduler.Config{Links: links, MonitorQueue: "companions-of-the-test", Companions: "each"})
			if err != nil {
				t.Fatal(err)
			}
			p.life.Links("of the test", func(ctx context.Context) error {
				_ = s.Close(ctx)
				return links.Close()
			})
			if err := p.broker.AddQueue(config.CompanionQueue("companions-of-the-test")); err != nil {
				t.Fatal(err)
			}
			if err := s.MeasureClock(t.Context()); err != nil {
				t.Fatal(err)
			}
			send, err := canarySend(p.environment, links, s, p.endpoints.proxy)
			if err != nil {
				t.Fatal(err)
			}
			if err := send(t.Context(), "bird", time.Hour); err != nil {
				t.Fatal(err)
			}
			canaries, _ := p.broker.Queue("canaries")
			found := false
			for _, v := range brokertest.Seen(canaries.Peek(nil, 0, 100)) {
				found = found || v.MessageID == "bird" && v.TTL == time.Hour
			}
			if !found {
				t.Error("the queue of canaries has no message bird that lives for an hour")
			}
			own, _ := p.broker.Queue("companions-of-the-test")
			if got := own.Counts().Scheduled > 0; got != (keys != "") {
				t.Errorf("a companion of its own: %v, want %v", got, keys != "")
			}
		})
	}
}

func TestACanaryThatTheEndpointRefusesIsAnErrorWithItsAnswer(t *testing.T) {
	p := startTest(t, "canary: {queue: canaries, interval: 1h}\n")
	send, err := canarySend(p.environment, nil, nil, p.endpoints.proxy)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), strings.Repeat("x", 129), time.Hour); err == nil || !strings.HasPrefix(err.Error(), "400 ") {
		t.Errorf("send = %v, want the 400 of the endpoint for an id that is too long", err)
	}
}

// A clock of ours that is ahead makes the companion of a canary late, unless it waits.
func TestACanaryWaitsUntilTheClockIsMeasured(t *testing.T) {
	for name, tt := range map[string]struct{ measured, want time.Duration }{
		"after a second": {time.Second, time.Second},
		"never":          {time.Hour, clockTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				measured := make(chan struct{})
				timer := time.AfterFunc(tt.measured, func() { close(measured) })
				defer timer.Stop()
				awaitClock(t.Context(), measured)
				if took := time.Since(began); took != tt.want {
					t.Errorf("it waits for %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestTheHeartBeatsWhileTheProcessIsReady(t *testing.T) {
	t.Parallel()
	beats := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case beats <- r.Method + " " + r.URL.Path:
		default:
		}
	}))
	defer server.Close()
	startTest(t, "broker: {autoCreate: true}\nheartbeat: {url: \""+server.URL+"/beat\", interval: 1s}\n")
	if got := <-beats; got != "GET /beat" {
		t.Errorf("heartbeat = %s, want GET /beat", got)
	}
}

func TestAProcessIsWellWhenItServesIsReadyAndItsCanaryComesBack(t *testing.T) {
	failing := func(name string) adminport.Check {
		return adminport.Check{Name: name, OK: func(context.Context) error { return context.DeadlineExceeded }}
	}
	life := lifecycle.New(zap.NewNop(), time.Second)
	p := &environment{life: life, admin: &adminport.Port{Life: life}}
	if err := p.well(t.Context()); err == nil || err.Error() != "state: starting" {
		t.Errorf("before it serves: %v, want its state", err)
	}
	life.Serving()
	p.admin.Outbound = []adminport.Check{failing("hook")}
	if err := p.well(t.Context()); err != nil {
		t.Errorf("with a sink that fails: %v, want nil", err)
	}
	p.admin.Outbound = append(p.admin.Outbound, failing("canary"))
	if err := p.well(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "canary: ") {
		t.Errorf("with a canary that is lost: %v, want that", err)
	}
	p.admin.Ready = []adminport.Check{failing("upstream")}
	if err := p.well(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "upstream: ") {
		t.Errorf("without its namespace: %v, want that", err)
	}
}
