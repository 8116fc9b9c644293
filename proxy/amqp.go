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

// newRelay is what stands behind the AMQP endpoint; nil when the configuration has none.
func (p *Proxy) newRelay() *relay.Relay {
	cfg := p.cfg.AMQP
	if cfg.Dial == nil {
		return nil
	}
	cfg.Refuse, cfg.Watch, cfg.Observe = p.refuseLink, p.watch, p.observe
	if len(p.cfg.Keys) > 0 {
		cfg.Admit = relay.KeysOf(p.keys)
	}
	if cfg.ErrorLog == nil {
		cfg.ErrorLog = func(err error) {
			p.cfg.Log.Warn("the proxy cannot prove itself to the namespace", zap.String("endpoint", endpointAMQP), zap.Error(err))
		}
	}
	return relay.New(cfg)
}

// newPort is the port of both endpoints. The first bytes of a connection say which one it wants.
func (p *Proxy) newPort() *listener.Server {
	serve := func(nc net.Conn) error {
		nc.Close()
		return errors.New("proxy: Config.AMQP says not where to dial")
	}
	if p.behind != nil {
		serve = p.behind.ServeConn
	}
	// Whoever can reach an endpoint can have it log; so no more than some lines a second.
	log := p.cfg.Log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 20, 1000)
	}))
	return listener.New(listener.Config{
		AMQP: serve, HTTP: p, TLS: p.cfg.TLS, Open: len(p.cfg.Keys) == 0 && !p.cfg.ClientTokens,
		MaxConns: p.cfg.AMQP.MaxConns,
		ErrorLog: func(err error) { log.Info("connection of an app has ended", zap.Error(err)) },
	})
}

// Serve opens both endpoints on ln, until it fails or the proxy is closed. A connection of AMQP,
// also over WebSocket, is passed on to the namespace over one of its own, and what is sent over it
// to a monitored entity is watched; requests over HTTP are the REST endpoint's. Each may come
// within TLS where Config.TLS is set. It closes ln and returns nil after Drain, Shutdown or Close,
// else why it ended.
func (p *Proxy) Serve(ln net.Listener) error { return unlessClosed(p.port.Serve(ln)) }

// ServeTLS is Serve for a listener on which nothing but TLS is taken.
func (p *Proxy) ServeTLS(ln net.Listener) error { return unlessClosed(p.port.ServeTLS(ln)) }

func unlessClosed(err error) error {
	if errors.Is(err, listener.ErrClosed) {
		return nil
	}
	return err
}

// Drain lets no more connections in, and returns when the last one has been closed by its app or
// ctx ends, with the cause of that. Until Shutdown everything goes on over those that are there.
func (p *Proxy) Drain(ctx context.Context) error { return p.port.Drain(ctx) }

// Connections returns how many connections of apps there are at both endpoints.
func (p *Proxy) Connections() int { return p.port.Connections() }

// Shutdown lets no more connections in and finishes the requests in flight; those that wait for a
// message are told to come again. Connections of AMQP stay until Close.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.endWaits()
	err := p.port.Shutdown(ctx)
	if p.upstream != nil {
		p.upstream.CloseIdleConnections()
	}
	return err
}

// closeAMQP lets what was sent through the AMQP endpoint be settled and closes its connections,
// with a condition after which SDKs connect anew.
func (p *Proxy) closeAMQP(ctx context.Context) error {
	if p.behind == nil {
		return nil
	}
	return p.behind.Shutdown(ctx)
}
