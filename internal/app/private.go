// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/rand"

	"go.uber.org/zap"

	"overdue/internal/config"
)

// StartPrivate starts an endpoint for one command or action, and returns its connection string.
// Messages that are sent there to monitored entities have companions.
func StartPrivate(ctx context.Context, c *config.Config, log *zap.Logger, level zap.AtomicLevel) (p *Process, text string, err error) {
	private := *c
	key := makePrivate(&private)
	if p, err = Start(config.Role{Name: "operator", Proxy: true}, &private, log, level); err != nil {
		return nil, "", err
	}
	if err := p.UntilReady(ctx); err != nil {
		_ = p.Stop() // the reason why it is not ready is the one to report
		return nil, "", err
	}
	return p, config.ConnectionString(p.AMQPAddr(), config.AnyKeyName, key), nil
}

// makePrivate makes the endpoints those of one command: on loopback, for one random key.
func makePrivate(c *config.Config) (key string) {
	const any = "127.0.0.1:0"
	key = rand.Text()
	c.Listen = config.Listen{AMQP: any, HTTP: any, Admin: any, MaxConnections: 100, Keys: []config.EndpointKey{{Name: config.AnyKeyName, Key: key, Manage: true}}}
	c.Proxy.Credentials = config.OwnCredentials
	// Journal and history are the sidecar's: two processes cannot have them.
	c.OnMonitorDown, c.Journal.Directory = config.OnMonitorDownRefuse, ""
	c.History.Enabled, c.Dashboard.Token = false, ""
	c.Canary, c.Heartbeat = config.Canary{}, config.Heartbeat{}
	c.MinSigtermDelay, c.MaxSigtermDelay = 0, 0
	return key
}
