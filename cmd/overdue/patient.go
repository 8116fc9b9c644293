// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	sbadmin "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
)

// A patient is the namespace of a configuration, as the doctor gets at it: over the same ways as the rooms.
type patient struct {
	cfg    *config.Config
	ns     *connect.Namespace
	client *sdk.Client
	links  *link.Namespace
	api    *entities.Admin
	fleet  string // what the processes of the configuration know the namespace by, for Redis
}

func newPatient(c *config.Config) (*patient, error) {
	ns, err := connect.Parse(c.Namespace)
	if err != nil {
		return nil, &config.Error{Err: fmt.Errorf("%s: %w", c.At("namespace"), err)}
	}
	client, links, tokens, err := ns.Connect(zap.NewNop())
	if err != nil {
		return nil, err
	}
	d := &patient{cfg: c, ns: ns, client: client, links: links, fleet: ns.Host}
	var taken []string
	if ns.Plain {
		// An overdue that runs beside an emulator has its doors where the emulator's API would be looked for.
		for _, a := range c.Endpoints() {
			if c.Given(a.Key) {
				taken = append(taken, a.Addr)
			}
		}
	}
	d.api, err = connect.AdminAPI(c, ns, tokens, taken...)
	return d, err
}

// close ends the connections. What was asked has been answered by then.
func (d *patient) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lifecycle.CloseTimeout)
	defer cancel()
	_ = lifecycle.Bounded(ctx, d.client.Close)
	_ = lifecycle.Bounded(ctx, func(context.Context) error { return d.links.Close() })
	d.api.Client.CloseIdleConnections()
}

// administration is the SDK's client, for changes: it writes entities in the form that the service wants.
func (d *patient) administration() (*sbadmin.Client, error) {
	if len(d.api.Endpoints) == 0 {
		return nil, errors.New(catalog.NowhereToAsk)
	}
	return d.ns.Administration(d.api)
}

// redis is the Redis of the configuration, as its processes have it.
func (d *patient) redis() (*redisstore.Store, error) {
	return redisstore.Open(redisstore.Config{
		Address: d.cfg.RedisAddress, Roots: d.cfg.RedisRoots, Fleet: []string{alert.NamespaceOf(d.fleet), d.cfg.MonitorQueue},
		Slack: 5, // an operator is more patient than a monitor
	})
}

// doctorPatience bounds one change.
const doctorPatience = 30 * time.Second
