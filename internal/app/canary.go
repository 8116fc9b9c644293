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

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/config"
	"overdue/internal/operator/canary"
	"overdue/internal/servicebus/sdk"
	"overdue/proxy"
	"overdue/scheduler"
)

// startCanary starts the canary and the heartbeat. px is nil where there is no proxy.
func startCanary(e *environment, ns *connection, s *scheduler.Scheduler, px *proxy.Proxy) error {
	if queue := e.cfg.Canary.Queue; queue != "" {
		send, err := canarySend(e, ns.client, s, px)
		if err != nil {
			return err
		}
		bird, err := canary.New(canary.Config{
			Links: ns.links, Queue: queue, Interval: e.cfg.Canary.Interval, Send: send,
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
func canarySend(e *environment, client *sdk.Client, s *scheduler.Scheduler, px *proxy.Proxy) (func(context.Context, string, time.Duration) error, error) {
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
	sender := client.NewSender(queue)
	e.life.Links("canary", sender.Close)
	return func(ctx context.Context, id string, ttl time.Duration) error {
		now := s.Now().Time
		err := s.Schedule(ctx, scheduler.Companion{Entity: queue, References: []scheduler.Reference{
			{MessageID: id, Sent: now, Deadline: now.Add(ttl), Within: ttl, Stated: "ttl"},
		}})
		if err != nil {
			return err
		}
		return sender.Send(ctx, &azservicebus.Message{MessageID: &id, Body: []byte("canary"), TimeToLive: to.Ptr(ttl)})
	}, nil
}
