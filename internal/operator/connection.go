// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.uber.org/zap"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/servicebus/link"
)

// A Connection is how an operator's command gets at messages. It reads and receives as the
// configuration says, and sends as an app at an AMQP endpoint does: what goes to monitored entities
// has its companions.
type Connection struct {
	*Client                          // for reading and receiving
	Sender      *azservicebus.Client // through the endpoint; nil when there is none
	SenderLinks *link.Namespace      // likewise, for what is sent as it is encoded
	ends        []func()
}

// Close ends all of it, the last first.
func (c *Connection) Close() {
	for _, end := range slices.Backward(c.ends) {
		end()
	}
}

// Connect opens a Connection for reading and receiving, with no more than the right to listen.
// endpoint is the host:port of an endpoint that runs; "" means none, except that of listen.amqp
// where no namespace is configured, since the broker is within another process then.
func Connect(ctx context.Context, c *config.Config, endpoint string) (*Connection, error) {
	if endpoint != "" || c.Embedded() {
		return connectThrough(ctx, c, endpoint)
	}
	client, err := Open(c)
	if err != nil {
		return nil, err
	}
	return &Connection{Client: client, ends: []func(){func() { client.Close(ctx) }}}, nil
}

// ConnectSender opens a Connection that sends, too. Without an endpoint that runs it starts one of its
// own, whose errors are logged to stderr.
func ConnectSender(ctx context.Context, c *config.Config, endpoint string, stderr io.Writer) (conn *Connection, err error) {
	if conn, err = Connect(ctx, c, endpoint); err != nil || conn.Sender != nil {
		return conn, err
	}
	opened := conn
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	log, level, err := app.NewLog(stderr, config.Log{Level: zap.ErrorLevel.String(), Format: "auto"})
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	proc, text, err := app.StartPrivate(ctx, c, log, level)
	if err != nil {
		return nil, err
	}
	conn.ends = append(conn.ends, func() { _ = proc.Stop() }) // what was sent has been acknowledged by then, with its companions
	through, err := Open(c.WithNamespace(text))
	if err != nil {
		return nil, err
	}
	conn.ends = append(conn.ends, func() { through.Close(ctx) })
	conn.Sender, conn.SenderLinks = through.SDK, through.Links
	return conn, nil
}

// connectThrough connects to the endpoint of another process, on this machine or elsewhere.
func connectThrough(ctx context.Context, c *config.Config, addr string) (*Connection, error) {
	where := "--endpoint"
	if addr == "" {
		addr, where = c.Listen.AMQP, "listen.amqp"
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return nil, &config.Error{Err: fmt.Errorf("%s is %q; it must be host:port", where, config.Clip(addr))}
	}
	dialing, cancel := context.WithTimeout(ctx, connect.DialTimeout)
	defer cancel()
	tried, err := (&net.Dialer{}).DialContext(dialing, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("nothing answers at %s, %s; start `overdue run`, or set --namespace: %w", where, addr, err)
	}
	_ = tried.Close()
	name, key := config.AnyKeyName, config.AnyKey
	if len(c.Listen.Keys) > 0 {
		name, key = c.Listen.Keys[0].Name, c.Listen.Keys[0].Key
	}
	through := c.WithNamespace(config.ConnectionString(addr, name, key))
	client, err := Open(through)
	if err != nil {
		return nil, err
	}
	if c.Embedded() {
		client.Fleet = c.Broker.Listen
	} else if ns, err := connect.Parse(c.Namespace); err == nil {
		client.Fleet = ns.Host // and not the endpoint
	}
	return &Connection{
		Client:      client,
		Sender:      client.SDK,
		SenderLinks: client.Links,
		ends:        []func(){func() { client.Close(ctx) }},
	}, nil
}
