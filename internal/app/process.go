// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/lifecycle"
	"overdue/internal/version"
	"overdue/internal/web"
)

// Run runs a role until ctx ends, somebody asks it to quit or a component fails. load reads the configuration again.
// The banner goes to stdout, the log to stderr.
func Run(ctx context.Context, r config.Role, c *config.Config, load func() (*config.Config, error), stdout, stderr io.Writer) error {
	useProcessors(r)
	log, level, err := NewLog(stderr, c.Log)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer func() { _ = log.Sync() }() // of a terminal or a pipe it fails for no reason
	proc, err := Start(ctx, r, c, log, level)
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		log.Info("stopped before everything had started", zap.Error(err))
		return nil
	case err != nil:
		return err
	}
	reloads := newReloader(proc, load)
	if c.Sources.Reloads() {
		// Without a file SIGHUP ends the process, as it does when a terminal is closed.
		proc.life.Background("configuration", reloads.run)
	}
	proc.banner(stdout)
	if r.Ready != "" {
		_, _ = fmt.Fprintln(stdout, r.Ready) // as the banner
	}
	log.Info("serving", zap.String("role", r.Name), zap.String("version", version.String()), zap.String("admin", proc.AdminAddress()))
	err = proc.wait(ctx)
	log.Info("stopped", zap.Error(err))
	return err
}

// wait blocks until the process is to end, and ends it. SIGTERM leaves apps the time that they may
// have; whatever else ends it does not.
func (p *Process) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), lifecycle.ErrTerminated) {
			p.log.Info("stopping", zap.String("reason", lifecycle.ErrTerminated.Error()))
			done := p.hurryOn()
			err := p.stopAfterDrain()
			return errors.Join(done(), err)
		}
		p.log.Info("stopping", zap.String("reason", "signal, or the end of standard input"))
	case <-p.admin.Quit:
		p.log.Info("stopping", zap.String("reason", "quitquitquit"))
	case failure := <-p.life.Failed:
		p.log.Error("component failed", zap.Error(failure))
		return errors.Join(failure, p.Stop())
	}
	return p.Stop()
}

// hurryOn cuts a drain short when somebody asks for the end once more, by a signal or by
// quitquitquit, or when a component fails, which is remembered. done ends the watch, and returns
// that failure.
func (e *environment) hurryOn() (done func() error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	end, ended := make(chan struct{}), make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		defer signal.Stop(again)
		select {
		case <-end:
		case <-e.life.Stopping: // the drain is over
		case <-again:
		case <-e.admin.Quit:
		case failure = <-e.life.Failed:
		}
		e.life.Hurry()
	}()
	return func() error {
		close(end)
		<-ended
		return failure
	}
}

const (
	// readyTimeout bounds how long UntilReady waits for a namespace that does not answer.
	readyTimeout = 30 * time.Second
	readyPoll    = 20 * time.Millisecond
)

// UntilReady waits until the namespace can be worked with, and says why it cannot. A check that
// has had no answer yet is waited for; one that has failed is not.
func (p *Process) UntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		var failure error
		pending := true
		for _, o := range adminport.Ask(ctx, p.admin.Ready) {
			if o.Err != nil {
				failure = errors.Join(failure, o.Err)
				pending = pending && errors.Is(o.Err, errNotTried)
			}
		}
		if failure == nil || !pending {
			return failure
		}
		select {
		case failure := <-p.life.Failed:
			return failure
		case <-ctx.Done():
			return failure
		case <-time.After(readyPoll):
		}
	}
}

// StartPrivate starts an endpoint for one command or action, and returns its connection string.
// Messages that are sent there to monitored entities have companions.
func StartPrivate(ctx context.Context, c *config.Config, log *zap.Logger, level zap.AtomicLevel) (p *Process, text string, err error) {
	private := *c
	key := makePrivate(&private)
	if p, err = Start(ctx, config.Role{Name: "operator", Proxy: true, Private: true}, &private, log, level); err != nil {
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
	c.Listen = config.Listen{AMQP: any, HTTP: any, Admin: any, MaxConnections: 100, Keys: []config.Key{{Name: config.AnyKeyName, Key: key, Manage: true}}}
	c.Proxy.Credentials = config.OwnCredentials
	// Journal and history are the sidecar's: two processes cannot have them.
	c.OnMonitorDown, c.Journal.Directory = config.OnMonitorDownRefuse, ""
	c.History.Enabled, c.Dashboard.Token = false, ""
	c.Canary, c.Heartbeat = config.Canary{}, config.Heartbeat{}
	c.MinSigtermDelay, c.MaxSigtermDelay = 0, 0
	return key
}

// Embedded is the broker of this process; nil where there is a namespace.
func (p *Process) Embedded() *broker.Broker {
	if p.broker == nil {
		return nil
	}
	return p.broker.Broker
}

// OwnConnectionString is how proxy and monitor reach the embedded broker.
func (p *Process) OwnConnectionString() string { return p.broker.ownConnectionString() }

// BrokerPage is the address of the pages of the embedded broker.
func (p *Process) BrokerPage() string { return p.broker.page() }

// AMQPAddr is where the first endpoint listens, "" if there is none.
func (p *Process) AMQPAddr() string { return p.endpoints.addr(0) }

// RestAddr is likewise that of listen.http.
func (p *Process) RestAddr() string { return p.endpoints.addr(1) }

// Dashboard is that of the admin port.
func (p *Process) Dashboard() *web.Dashboard { return p.dashboard }

// AdminAddress is where the admin port listens.
func (p *Process) AdminAddress() string { return p.servers.addr }

// Failure gets the first error of a component that ended by itself.
func (p *Process) Failure() <-chan error { return p.life.Failed }
