// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/operator"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
)

// hands are how an operator's command gets at messages. It looks and takes as the configuration says, and sends as an
// app at an AMQP endpoint does: what goes to monitored entities has its companions.
type hands struct {
	*operator.Client                 // for reading and receiving
	app              *sdk.Client     // of the endpoint, for sending; nil when there is none
	endpoint         *link.Namespace // likewise, for what is sent as it is encoded
	ends             []func()
}

// close ends all of it, the last first.
func (h *hands) close() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
}

// handsOptions say where the endpoint is.
type handsOptions struct{ endpoint string }

func (o *handsOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.endpoint, "endpoint", "",
		"host:port of the AMQP endpoint of an Overdue that runs; by default one of its own, or without a namespace that at listen.amqp")
}

// eyes are hands for who only looks and takes: without a endpoint, and with no more than the right to listen.
func (p *program) eyes(ctx context.Context, c *config.Config, o handsOptions) (*hands, error) {
	if o.endpoint != "" || c.Embedded() {
		return knockAt(ctx, c, o.endpoint)
	}
	client, err := operator.Open(c)
	if err != nil {
		return nil, err
	}
	return &hands{Client: client, ends: []func(){func() { client.Close(ctx) }}}, nil
}

// hand opens a endpoint of its own to the namespace of the configuration, and takes one that is there where none is
// configured: then the broker is within another process.
func (p *program) hand(ctx context.Context, c *config.Config, o handsOptions) (h *hands, err error) {
	if h, err = p.eyes(ctx, c, o); err != nil || h.app != nil {
		return h, err
	}
	opened := h
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	log, level, err := app.NewLog(p.stderr, config.Log{Level: zap.ErrorLevel.String(), Format: "auto"})
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	private := *c
	key := makePrivate(&private)
	proc, err := app.Start(config.Role{Name: "hands", Proxy: true}, &private, log, level)
	if err != nil {
		return nil, err
	}
	h.ends = append(h.ends, func() { _ = proc.Stop() }) // what was sent has been acknowledged by then, with its companions
	if err := proc.UntilReady(ctx); err != nil {
		return nil, err
	}
	return h, h.goTo(ctx, config.ConnectionString(proc.AmqpAddr(), config.AnyKeyName, key))
}

// goTo is the way to a endpoint, by its connection string.
func (h *hands) goTo(ctx context.Context, text string) error {
	ns, err := connect.Parse(text)
	if err != nil {
		return err
	}
	app, links, _, err := ns.Connect(zap.NewNop())
	if err != nil {
		return err
	}
	h.app, h.endpoint = app, links
	h.ends = append(h.ends, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), lifecycle.CloseTimeout) // the process ends next
		defer cancel()
		_ = lifecycle.Bounded(closing, h.app.Close)
		_ = lifecycle.Bounded(closing, func(context.Context) error { return h.endpoint.Close() })
	})
	return nil
}

// makePrivate makes the endpoints those of one command: on loopback, at any port, for whoever has the key.
func makePrivate(c *config.Config) (key string) {
	const any = "127.0.0.1:0"
	key = rand.Text()
	c.Listen = config.Listen{AMQP: any, HTTP: any, Admin: any, MaxConnections: 100, Keys: []config.EndpointKey{{Name: config.AnyKeyName, Key: key, Manage: true}}}
	c.Proxy.Credentials = config.OwnCredentials
	// The journal is the sidecar's: two processes cannot have it, and an operator sees a refusal.
	c.OnMonitorDown, c.Journal.Directory = config.OnMonitorDownRefuse, ""
	c.Canary, c.Heartbeat = config.Canary{}, config.Heartbeat{}
	c.MinSigtermDelay, c.MaxSigtermDelay = 0, 0
	return key
}

// knockAt is hand at the endpoint of another process, on this machine or elsewhere.
func knockAt(ctx context.Context, c *config.Config, addr string) (*hands, error) {
	where := "--endpoint"
	if addr == "" {
		addr, where = c.Listen.AMQP, "listen.amqp"
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return nil, &config.Error{Err: fmt.Errorf("%s is %q; it must be host:port", where, config.Clip(addr))}
	}
	dialing, cancel := context.WithTimeout(ctx, connect.DialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("nothing answers at %s, %s; start `overdue run`, or set --namespace: %w", where, addr, err)
	}
	_ = conn.Close() // it was only to see
	name, key := config.AnyKeyName, config.AnyKey
	if len(c.Listen.Keys) > 0 {
		name, key = c.Listen.Keys[0].Name, c.Listen.Keys[0].Key
	}
	through := c.WithNamespace(config.ConnectionString(addr, name, key))
	client, err := operator.Open(through)
	if err != nil {
		return nil, err
	}
	if c.Embedded() {
		client.Fleet = c.Broker.Listen
	} else if ns, err := connect.Parse(c.Namespace); err == nil {
		client.Fleet = ns.Host // and not the endpoint
	}
	h := &hands{Client: client, ends: []func(){func() { client.Close(ctx) }}}
	if err := h.goTo(ctx, through.Namespace); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}
