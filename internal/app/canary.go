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

	"overdue/internal/adminport"
	"overdue/internal/config"
	"overdue/internal/lifecycle"
	"overdue/internal/operator/canary"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
	"overdue/proxy"
	"overdue/scheduler"
)

// startWatch starts the canary and the heartbeat. px is nil where there is no proxy.
func (p *Process) startWatch(client *sdk.Client, links *link.Namespace, s *scheduler.Scheduler, px *proxy.Proxy) error {
	if queue := p.cfg.Canary.Queue; queue != "" {
		send, err := p.canarySend(client, s, px)
		if err != nil {
			return err
		}
		bird, err := canary.New(canary.Config{
			Links: links, Queue: queue, Interval: p.cfg.Canary.Interval, Send: send,
			Log: p.log.Named("canary"), Registerer: p.registry,
		})
		if err != nil {
			return err
		}
		p.life.Background("canary", bird.Run)
		p.admin.Outbound = append(p.admin.Outbound, adminport.Check{Name: "canary", OK: bird.Check})
	}
	if url := p.cfg.Heartbeat.URL; url != "" {
		p.life.Background("heartbeat", func(ctx context.Context) error {
			return canary.Heartbeat(ctx, url, p.cfg.Heartbeat.Interval, p.well, p.log.Named("heartbeat"))
		})
	}
	return nil
}

// well is nil when this process is ready and the canary, if there is one, comes back.
func (p *Process) well(ctx context.Context) error {
	if s := p.life.State(); s != lifecycle.StateServing {
		return fmt.Errorf("the process is %s", s)
	}
	checks := p.admin.Ready
	for _, c := range p.admin.Outbound {
		if c.Name == "canary" {
			checks = append(checks[:len(checks):len(checks)], c)
		}
	}
	for _, o := range adminport.Ask(ctx, checks) {
		if o.Err != nil {
			return fmt.Errorf("%s: %w", o.Name, o.Err)
		}
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
func (p *Process) canarySend(client *sdk.Client, s *scheduler.Scheduler, px *proxy.Proxy) (func(context.Context, string, time.Duration) error, error) {
	queue := p.cfg.Canary.Queue
	if px != nil && len(p.cfg.Listen.Keys) == 0 && !p.cfg.PassesCredentials() {
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
	p.life.Links("canary", sender.Close)
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
