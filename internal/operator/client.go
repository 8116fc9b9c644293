// SPDX-License-Identifier: Apache-2.0

// Package operator has the client with which the commands of operators connect to a namespace, over
// the same connections as the processes with that configuration.
package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/alert"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/operator/dlq"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

const (
	// Timeout bounds one request of an operator's command to the namespace.
	Timeout = 30 * time.Second
	// redisSlack stretches the time limits of requests to Redis: an operator can wait longer than a
	// monitor.
	redisSlack = 5
	// maxNames bounds the queues, and the topics, that a suggestion is taken from.
	maxNames = 1000
)

// A Client is connected to the namespace of a configuration. It dials when it is first used.
type Client struct {
	Config    *config.Config
	Namespace *connect.Namespace
	SDK       *azservicebus.Client
	Links     *link.Namespace
	Admin     *entities.Admin // without endpoints if there is no administration API
	// Fleet is the address by which the processes of the fleet know the namespace. It differs from
	// that of Namespace if the client is connected through an endpoint of one of them.
	Fleet string
}

// Open makes a Client. An invalid namespace is a [config.Error].
func Open(c *config.Config) (*Client, error) {
	ns, err := connect.Parse(c.Namespace)
	if err != nil {
		return nil, &config.Error{Err: fmt.Errorf("%s: %w", c.At("namespace"), err)}
	}
	client, err := ns.SDK()
	if err != nil {
		return nil, err
	}
	links, tokens, err := ns.Links()
	if err != nil {
		return nil, err
	}
	var taken []string
	if ns.Plain {
		// If Overdue runs beside an emulator, its endpoints may have the port where the emulator
		// has its API by default.
		for _, a := range c.Listen.Endpoints() {
			if c.Given(a.Key) {
				taken = append(taken, a.Addr)
			}
		}
	}
	api, err := connect.AdminAPI(c, ns, tokens, taken...)
	if err != nil {
		return nil, err
	}
	return &Client{Config: c, Namespace: ns, SDK: client, Links: links, Admin: api, Fleet: ns.Host}, nil
}

// Close closes the connections. Every request must have its answer by then.
func (c *Client) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lifecycle.CloseTimeout)
	defer cancel()
	_ = lifecycle.Bounded(ctx, c.SDK.Close) // the process ends next
	_ = lifecycle.Bounded(ctx, func(context.Context) error { return c.Links.Close() })
	c.Admin.Client.CloseIdleConnections()
}

var errNoAdmin = errors.New(catalog.NowhereToAsk)

// Administration returns the SDK's client for changes of entities, which writes them as the service
// expects.
func (c *Client) Administration() (*admin.Client, error) {
	if len(c.Admin.Endpoints) == 0 {
		return nil, errNoAdmin
	}
	return c.Namespace.Administration(c.Admin)
}

// Read reads the settings of a queue or topic. Its errors are those of [entities.Source].
func (c *Client) Read(ctx context.Context, name string) (entities.Info, error) {
	if len(c.Admin.Endpoints) == 0 {
		return entities.Info{}, errNoAdmin
	}
	return c.Admin.Read(ctx, name)
}

// IsTopic reports whether the place is known to be a topic. Brokers differ in how they answer a
// peek at the dead letters of a topic, which has none.
func (c *Client) IsTopic(ctx context.Context, place dlq.Place) bool {
	if place.Subscription != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	info, err := c.Read(ctx, place.Entity)
	return err == nil && info.Kind == entities.Topic
}

// Names are those of queues and topics, as far as the configuration and the namespace say them.
func (c *Client) Names(ctx context.Context) (all []string) {
	for i := range c.Config.Monitor.Entities {
		all = append(all, c.Config.Monitor.Entities[i].Name())
	}
	if len(c.Admin.Endpoints) == 0 {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for _, kind := range []entities.Kind{entities.Queue, entities.Topic} {
		names, _, err := c.Admin.List(ctx, kind, maxNames)
		if err != nil {
			return all // they are for a suggestion alone
		}
		all = append(all, names...)
	}
	return all
}

// OpenRedis opens the Redis of the configuration, with the keys of the fleet. The caller closes it.
func (c *Client) OpenRedis() (*redisstore.Store, error) {
	return redisstore.Open(redisstore.Config{
		Address: c.Config.RedisAddress, Roots: c.Config.RedisRoots,
		Fleet: []string{alert.NamespaceOf(c.Fleet), c.Config.MonitorQueue}, Slack: redisSlack,
	})
}

// MeasureClock measures how far the broker's clock is ahead of ours, and how wrong that can be, as
// a process with this configuration does.
func (c *Client) MeasureClock(ctx context.Context) (ahead, uncertainty time.Duration, err error) {
	cfg := scheduler.Config{MonitorQueue: c.Config.MonitorQueue, Links: c.Links}
	if c.Config.CompanionsInRedis() {
		var store *redisstore.Store // the clock is that of the broker, so nothing is asked there
		if store, err = c.OpenRedis(); err != nil {
			return 0, 0, err
		}
		defer func() { _ = store.Close() }() // nothing was written
		cfg.Store = store.Companions()
	}
	s, err := scheduler.New(cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }() // it has nothing in flight
	if err := s.MeasureClock(ctx); err != nil {
		return 0, 0, err
	}
	now := s.Now()
	return time.Until(now.Time), now.Uncertainty, nil
}
