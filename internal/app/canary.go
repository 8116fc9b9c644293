// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"overdue/internal/config"
	"overdue/internal/operator/canary"
	"overdue/internal/servicebus/link"
	"overdue/proxy"
	"overdue/scheduler"
)

// startCanary starts the canary and the heartbeat. px is nil where there is no proxy.
func startCanary(e *environment, ns *connection, s *scheduler.Scheduler, px *proxy.Proxy) error {
	if queue := e.cfg.Canary.Queue; queue != "" {
		send, err := canarySend(e, ns.links, s, px)
		if err != nil {
			return err
		}
		bird, err := canary.New(canary.Config{
			Links: ns.links, Queue: queue, Interval: e.cfg.Canary.Interval,
			Send: func(ctx context.Context, id string, ttl time.Duration) error {
				awaitClock(ctx, s.Measured())
				return send(ctx, id, ttl)
			},
			Log: e.log.Named("canary"), Registerer: e.registry,
		})
		if err != nil {
			return err
		}
		e.life.Background("canary", bird.Run)
		e.addOutbound("canary", bird.Check)
	}
	if url := e.cfg.Heartbeat.URL; url != "" {
		e.life.Background("heartbeat", func(ctx context.Context) error {
			return canary.Heartbeat(ctx, url, e.cfg.Heartbeat.Interval, e.well, e.log.Named("heartbeat"))
		})
	}
	return nil
}

// awaitClock waits until the broker's clock has been measured, or for clockTimeout where it cannot
// be. Before, deadlines go by our own clock: if that is ahead, the first canary is lost.
func awaitClock(ctx context.Context, measured <-chan struct{}) {
	select {
	case <-measured:
	case <-time.After(clockTimeout):
	case <-ctx.Done():
	}
}

// endpointAnswer is what the endpoint answers to us.
type endpointAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *endpointAnswer) Header() http.Header         { return a.header }
func (a *endpointAnswer) WriteHeader(status int)      { a.status = status }
func (a *endpointAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }

// canarySend sends a canary the way of any message, through the endpoint. If no endpoint lets us in
// without a key, it sends with a companion that this process makes.
func canarySend(e *environment, links *link.Namespace, s *scheduler.Scheduler, px *proxy.Proxy) (func(context.Context, string, time.Duration) error, error) {
	queue := e.cfg.Canary.Queue
	if px != nil && len(e.cfg.Listen.Keys) == 0 && !e.cfg.Proxy.PassesCredentials() {
		return func(ctx context.Context, id string, ttl time.Duration) error {
			properties, err := json.Marshal(map[string]any{"MessageId": id, "TimeToLive": ttl.Seconds()})
			if err != nil {
				return err
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/"+queue+"/messages", strings.NewReader("canary"))
			if err != nil {
				return err
			}
			r.Header.Set("BrokerProperties", string(properties))
			w := &endpointAnswer{header: http.Header{}}
			px.ServeHTTP(w, r)
			if w.status != http.StatusCreated {
				return fmt.Errorf("%d %s", w.status, config.Clip(strings.TrimSpace(w.body.String())))
			}
			return nil
		}, nil
	}
	return func(ctx context.Context, id string, ttl time.Duration) error {
		if err := s.ScheduleTTL(ctx, queue, id, ttl); err != nil {
			return err
		}
		m := link.ScheduledMessage{
			MessageID:  id,
			TimeToLive: ttl,
			Body:       []byte("canary"),
		}
		return links.Send(ctx, queue, m.Encoded())
	}, nil
}
