// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"overdue/internal/amqp/relay"
	"overdue/internal/listener"
)

// newRelay returns the relay of the AMQP endpoint.
func (p *Proxy) newRelay() *relay.Relay {
	cfg := p.cfg.AMQP
	cfg.Refuse, cfg.Watch, cfg.Observe = p.refuseLink, p.watch, p.observe
	if len(p.cfg.Keys) > 0 {
		cfg.Admit = relay.KeysOf(p.keys)
	}
	if cfg.ErrorLog == nil {
		cfg.ErrorLog = func(err error) {
			p.cfg.Log.Warn("no token for the namespace: apps cannot use the AMQP endpoint", zap.String("endpoint", endpointAMQP), zap.Error(err), zap.String("next", "check the setting namespace and the rights of its key or identity; overdue doctor examines both"))
		}
	}
	return relay.New(cfg)
}

// newPort returns the server of both endpoints. The first bytes of a connection select the
// endpoint.
func (p *Proxy) newPort() *listener.Server {
	// Anyone who can reach an endpoint can make it log, so limit the lines per second.
	log := p.cfg.Log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 20, 1000)
	}))
	return listener.New(listener.Config{
		AMQP: p.behind.ServeConn, HTTP: p, TLS: p.cfg.TLS, Open: len(p.cfg.Keys) == 0 && !p.cfg.ClientTokens,
		MaxConns: p.cfg.AMQP.MaxConns,
		ErrorLog: func(err error) { log.Info("connection of an app has ended", zap.Error(err)) },
	})
}

// Serve serves both endpoints on ln until ln fails or the proxy is closed. It relays each AMQP
// connection, also over WebSocket, over a connection of its own to the namespace, and watches the
// sends to monitored entities. HTTP requests go to the REST endpoint. With Config.TLS, both also
// work over TLS. Serve closes ln. It returns nil after Drain, Shutdown or Close, otherwise the
// error.
func (p *Proxy) Serve(ln net.Listener) error { return unlessClosed(p.port.Serve(ln)) }

// ServeTLS is like Serve, but takes nothing but TLS.
func (p *Proxy) ServeTLS(ln net.Listener) error { return unlessClosed(p.port.ServeTLS(ln)) }

func unlessClosed(err error) error {
	if errors.Is(err, listener.ErrClosed) {
		return nil
	}
	return err
}

// Drain stops accepting connections. It returns when apps have closed all connections, or with
// the cause of ctx when ctx ends. Until Shutdown the open connections keep working.
func (p *Proxy) Drain(ctx context.Context) error { return p.port.Drain(ctx) }

// Connections returns the number of open app connections at both endpoints.
func (p *Proxy) Connections() int { return p.port.Connections() }

// Shutdown stops accepting connections and finishes the requests in flight. A request that waits
// for a message gets an answer that asks the app to retry. AMQP connections stay open until
// Close.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.endWaits()
	err := p.port.Shutdown(ctx)
	p.upstream.CloseIdleConnections()
	return err
}
