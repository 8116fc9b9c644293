// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/broker"
	"overdue/internal/queue"
)

const (
	// A send may take proxy.Config.SendTimeout after its body has been read.
	doorReadTimeout  = 30 * time.Second
	doorWriteTimeout = 90 * time.Second

	adminReadTimeout = 10 * time.Second
	// adminWriteTimeout leaves room for a profile of a minute.
	adminWriteTimeout = 2 * time.Minute
	adminStopTimeout  = 2 * time.Second
)

// A process is the rooms of one role, wired. Started in this order, stopped in reverse:
//
//	admin ─ embedded broker ─ clients ─ scheduler ─ clock, upstream ─ monitor ─ proxy ─ REST door
//
// Admin stays up until everything else has been stopped.
type process struct {
	role role
	cfg  *config
	log  *zap.Logger
	life *lifecycle

	registry    *prometheus.Registry
	admin       *admin
	adminServer *http.Server

	broker    *broker.Broker // nil when there is a namespace
	namespace *namespace

	adminAddr, doorAddr, brokerAddr string // as bound; "" where nothing listens
}

// start makes and starts the rooms of a role. What had been started is stopped again
// when a later one cannot be.
func start(r role, c *config, log *zap.Logger, level zap.AtomicLevel) (*process, error) {
	p := &process{
		role: r, cfg: c, log: log,
		life:     newLifecycle(log, c.ShutdownTimeout),
		registry: newRegistry(),
	}
	p.admin = &admin{life: p.life, level: level, metrics: p.registry, cfg: c, quit: make(chan struct{}, 1)}
	listeners, err := p.bind()
	if err != nil {
		return nil, err
	}
	if err := p.startAll(listeners); err != nil {
		for _, ln := range listeners {
			_ = ln.Close() // those that were served are closed already
		}
		// The start's own error is the one to tell.
		if stopErr := p.stop(); stopErr != nil {
			log.Warn("stop after a failed start", zap.Error(stopErr))
		}
		return nil, err
	}
	p.life.serving()
	return p, nil
}

// bind opens every listener before anything runs, so that a port in use is told at once.
// The result is by setting.
func (p *process) bind() (map[string]net.Listener, error) {
	want := map[string]string{"listen.admin": p.cfg.Listen.Admin}
	if p.role.proxy {
		want["listen.http"] = p.cfg.Listen.HTTP
	}
	if p.role.broker && p.cfg.embedded() {
		want["broker.listen"] = p.cfg.Broker.Listen
	}
	bound := map[string]net.Listener{}
	for _, key := range []string{"listen.admin", "listen.http", "broker.listen"} {
		addr, ok := want[key]
		if !ok {
			continue
		}
		ln, err := p.cfg.listen(key, addr)
		if err != nil {
			for _, other := range bound {
				_ = other.Close() // nobody has connected yet
			}
			return nil, err
		}
		bound[key] = ln
	}
	return bound, nil
}

// startAll starts what the role has. The admin port is served last, though bound first: it
// answers for rooms that are there, and nobody who connects earlier is refused.
func (p *process) startAll(listeners map[string]net.Listener) error {
	if ln := listeners["broker.listen"]; ln != nil {
		if err := p.startBroker(ln); err != nil {
			return err
		}
	}
	if p.role.proxy || p.role.monitor {
		if err := p.startRooms(listeners["listen.http"]); err != nil {
			return err
		}
	}
	ln := listeners["listen.admin"]
	p.adminAddr = ln.Addr().String()
	p.adminServer = newServer(p.admin.handler(), adminReadTimeout, adminWriteTimeout, p.log)
	go func() {
		// It ends after everything else, by stop.
		if err := p.adminServer.Serve(limit(ln, maxAdminConns)); !errors.Is(err, http.ErrServerClosed) {
			p.life.fail("admin", err)
		}
	}()
	return nil
}

// stop ends all rooms, then the admin port.
func (p *process) stop() error {
	err := p.life.drain()
	if p.adminServer == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminStopTimeout)
	defer cancel()
	// An answer that takes longer, such as a profile, is cut without that being a failure.
	if adminErr := p.adminServer.Shutdown(ctx); adminErr != nil {
		_ = p.adminServer.Close() // the listener is closed already
	}
	return err
}

// startBroker serves the embedded broker on ln. Config.check has seen to what broker.New
// might object to; if it objects all the same, that is a matter of configuration.
func (p *process) startBroker(ln net.Listener) error {
	cfg := broker.Config{
		AutoCreate: p.cfg.Broker.AutoCreate,
		// A queue that nobody described should show what became of its messages.
		AutoCreateConfig: broker.QueueConfig{DeadLetteringOnMessageExpiration: true},
		ClockOffset:      p.cfg.Broker.ClockOffset,
		MaxMessageSize:   uint64(p.cfg.Broker.MaxMessageSize),
		Expiry:           map[string]queue.Expiry{"lazy": queue.Lazy, "lazy-head": queue.LazyHead, "eager": queue.Eager}[p.cfg.Broker.Expiry],
		ErrorLog:         func(err error) { p.log.Debug("broker connection ended", zap.Error(err)) },
		Queues: []broker.QueueConfig{{
			Name: p.cfg.MonitorQueue,
			// What companions want: a lock that outlasts a pass over them, and no end of
			// deliveries, because one is given back whenever a monitor stops.
			LockDuration: time.Minute, MaxDeliveryCount: 2000,
		}},
	}
	for _, q := range p.cfg.Broker.Queues {
		cfg.Queues = append(cfg.Queues, broker.QueueConfig{
			Name: q.Name, LockDuration: q.LockDuration, MaxDeliveryCount: int(q.MaxDeliveryCount),
			DefaultMessageTimeToLive:         q.DefaultMessageTimeToLive,
			DeadLetteringOnMessageExpiration: q.DeadLetteringOnMessageExpiration,
		})
	}
	b, err := broker.New(cfg)
	if err != nil {
		return &configError{fmt.Errorf("the embedded broker cannot be made: %w", err)}
	}
	p.broker, p.brokerAddr = b, ln.Addr().String()
	var stopping atomic.Bool
	p.life.room("embedded broker", func() error {
		if err := b.Serve(ln); !stopping.Load() {
			return err
		}
		return nil // that it was closed is what stopping means
	}, func(ctx context.Context) error {
		stopping.Store(true)
		return b.Shutdown(ctx)
	})
	return nil
}
