// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/traces"
	"overdue/internal/web"
	"overdue/monitor"
	"overdue/monitor/mute"
)

// adminStopTimeout bounds the end of answers of the admin port.
const adminStopTimeout = 2 * time.Second

// A Process is the components of one role, wired. Started in this order, stopped in reverse:
//
//	admin ─ embedded broker ─ clients ─ scheduler ─ clock, upstream ─ monitor ─ proxy ─ endpoints
//
// Admin stays up until everything else has been stopped.
type Process struct {
	*environment
	servers   adminServers
	broker    *embedded // nil when there is a namespace
	namespace *connection
	source    entities.Source   // of what the catalog knows; nil with an embedded broker
	catalog   *catalog.Catalog  // of entities; nil for a broker alone
	shared    *redisstore.Store // nil without Redis
	traces    *traces.Tracer    // nil: off
	worker    *monitor.Worker   // nil without the role
	sinks     *sinkSet          // of the worker
	mutes     *mute.Record      // nil for a broker alone
	fleet     *fleet
	endpoints endpoints // none without a proxy
	dashboard *web.Dashboard

	headroom []byte // see HeapHeadroom
}

// Start makes and starts the components of a role. If a component cannot start, or ctx ends before
// all have started, those that have are stopped again.
func Start(ctx context.Context, r config.Role, c *config.Config, log *zap.Logger, level zap.AtomicLevel) (*Process, error) {
	p := &Process{environment: newEnvironment(r, c, log, level), headroom: make([]byte, HeapHeadroom)}
	ls, err := bind(r, c)
	if err != nil {
		return nil, err
	}
	if err := p.startAll(ctx, ls); err != nil {
		// The start's own error is the one to report. Components whose listeners were closed under them would have another.
		if stopErr := p.Stop(); stopErr != nil {
			log.Warn("stop after a failed start", zap.Error(stopErr))
		}
		ls.close()
		return nil, err
	}
	p.life.Serving()
	return p, nil
}

// startAll starts what the role has. The admin port is served last, though bound first: it
// answers for components that are there, and nobody who connects earlier is refused.
func (p *Process) startAll(ctx context.Context, ls *listeners) (err error) {
	startGarbageBound(p.life)
	p.self = newSelf(p.role, ls.admin.Addr().String())
	if len(ls.broker) > 0 {
		if p.broker, err = startBroker(ctx, p.environment, ls.broker); err != nil {
			return err
		}
	}
	if err := p.connect(); err != nil {
		return err
	}
	if p.role.Proxy || p.role.Monitor {
		if err := p.startComponents(ls.endpoints); err != nil {
			return err
		}
	}
	p.startFleet()
	p.registerCertificates()
	p.startDashboard()
	p.servers.addr = p.servers.serve(p.environment, "admin", ls.admin, p.admin.Handler(), adminport.WriteTimeout)
	if ls.probes != nil {
		p.servers.probesAddr = p.servers.serve(p.environment, "probes", ls.probes, p.admin.Probes(), adminport.ProbesWriteTimeout)
	}
	return nil
}

// adminServers answer operators and probes. They end after everything else.
type adminServers struct {
	addr       string // as bound, like probesAddr
	probesAddr string // "" without listen.probes
	all        []*http.Server
}

func (a *adminServers) serve(e *environment, name string, ln net.Listener, h http.Handler, write time.Duration) (addr string) {
	s := adminport.NewServer(h, write, e.log)
	a.all = append(a.all, s)
	go func() {
		if err := s.Serve(adminport.LimitConns(ln)); !errors.Is(err, http.ErrServerClosed) {
			e.life.Fail(name, err)
		}
	}()
	return ln.Addr().String()
}

func (a *adminServers) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), adminStopTimeout)
	defer cancel()
	for _, s := range a.all {
		// An answer that takes longer, such as a profile, is cut without that being a failure.
		if err := s.Shutdown(ctx); err != nil {
			_ = s.Close() // the listener is closed already
		}
	}
}

// Stop ends all components, then the admin port. It waits for no app.
func (p *Process) Stop() error {
	p.life.Hurry()
	return p.stopAfterDrain()
}

// stopAfterDrain is stop after the drain of apps.
func (p *Process) stopAfterDrain() error {
	err := p.life.Drain()
	p.servers.stop()
	return err
}
