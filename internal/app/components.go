// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/broker"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/listener"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/slack"
	"overdue/internal/traces"
	"overdue/internal/web"
	"overdue/monitor"
	"overdue/proxy"
)

// adminStopTimeout bounds the end of answers of the admin port.
const adminStopTimeout = 2 * time.Second

// A Process is the components of one role, wired. Started in this order, stopped in reverse:
//
//	admin ─ embedded broker ─ clients ─ scheduler ─ clock, upstream ─ monitor ─ proxy ─ endpoints
//
// Admin stays up until everything else has been stopped.
type Process struct {
	role config.Role
	cfg  *config.Config
	log  *zap.Logger
	life *lifecycle.Lifecycle

	registry     *prometheus.Registry
	admin        *adminport.Port
	dashboard    *web.Dashboard
	adminServers []*http.Server // that of listen.admin, then that of listen.probes if there is one

	broker      *broker.Broker           // nil when there is a namespace
	brokerKey   broker.AuthorizationRule // our own, where the broker has keys
	certificate *listener.Certificate    // of the embedded broker; nil without TLS
	namespace   *connect.Namespace
	source      entities.Source   // of what the catalog knows; nil with an embedded broker
	catalog     *catalog.Catalog  // of entities
	proxy       *proxy.Proxy      // nil without the role
	worker      *monitor.Worker   // nil without the role
	sinks       *sinkSet          // of the worker
	pages       alert.Pool        // of the fleet; nil without Redis
	shared      *redisstore.Store // nil without Redis
	slack       *slack.Meter      // of settlements; nil without a proxy
	traces      *traces.Tracer    // nil: off
	reloads     bool              // the configuration may change

	AdminAddr           string                // as bound, like all of these
	probesAddr          string                // "" without listen.probes
	endpointAddrs       []string              // of config.endpoints; none without a proxy
	endpointCertificate *listener.Certificate // nil without TLS
	brokerAddrs         []string              // the first is that of broker.listen

	headroom []byte // see HeapHeadroom
}

// HeapHeadroom is how much garbage may gather, in bytes, beyond what Go lets gather anyway, which is as much again
// as is in use. A busy sidecar has some 8 MB in use and fills as much again twenty times a second; each collection
// wakes every processor. It is memory that counts as in use and is never touched, so that
// none stands behind it. Unlike a higher GOGC it adds the same to a small heap and to that of a broker in
// which a million messages wait.
const HeapHeadroom = 24 << 20

// Start makes and starts the components of a role. If a component cannot start, those that have
// started are stopped again.
func Start(r config.Role, c *config.Config, log *zap.Logger, level zap.AtomicLevel) (*Process, error) {
	p := &Process{
		role: r, cfg: c, log: log,
		life:     lifecycle.New(log, c.ShutdownTimeout),
		registry: newRegistry(r), reloads: c.Reloads(),
		headroom: make([]byte, HeapHeadroom),
	}
	registerState(p.registry, p.life)
	p.admin = &adminport.Port{Life: p.life, Level: level, Metrics: p.registry, Config: c, Quit: make(chan struct{}, 1)}
	ls, err := p.bind()
	if err != nil {
		return nil, err
	}
	if err := p.startAll(ls); err != nil {
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

// listeners are what a role listens on, as bound.
type listeners struct {
	admin     net.Listener
	probes    net.Listener   // nil without listen.probes
	endpoints []net.Listener // of config.endpoints
	broker    []net.Listener // of config.BrokerAddresses
	all       []net.Listener
}

func (ls *listeners) close() {
	for _, ln := range ls.all {
		_ = ln.Close() // those that were served are closed already
	}
}

// bind opens every listener before anything runs, so that a port in use is an error at once.
func (p *Process) bind() (*listeners, error) {
	ls := &listeners{}
	var failure error
	open := func(key, addr string) net.Listener {
		if failure != nil {
			return nil
		}
		ln, err := listen(p.cfg, key, addr)
		if err != nil {
			failure = err
			return nil
		}
		ls.all = append(ls.all, ln)
		return ln
	}
	ls.admin = open("listen.admin", p.cfg.Listen.Admin)
	if p.cfg.Listen.Probes != "" {
		ls.probes = open("listen.probes", p.cfg.Listen.Probes)
	}
	if p.role.Proxy {
		for _, d := range p.cfg.Endpoints() {
			ls.endpoints = append(ls.endpoints, open(d.Key, d.Addr))
		}
	}
	if p.role.Broker && p.cfg.Embedded() {
		for _, d := range p.cfg.BrokerAddresses() {
			ls.broker = append(ls.broker, open(d.Key, d.Addr))
		}
	}
	if failure != nil {
		ls.close()
		return nil, failure
	}
	return ls, nil
}

// startAll starts what the role has. The admin port is served last, though bound first: it
// answers for components that are there, and nobody who connects earlier is refused.
func (p *Process) startAll(ls *listeners) error {
	p.startGarbageBound()
	if len(ls.broker) > 0 {
		if err := p.startBroker(ls.broker); err != nil {
			return err
		}
	}
	if p.role.Proxy || p.role.Monitor {
		if err := p.startComponents(ls.endpoints); err != nil {
			return err
		}
	}
	if err := p.startDashboard(); err != nil {
		return err
	}
	p.AdminAddr = ls.admin.Addr().String()
	p.serveAdmin("admin", ls.admin, p.admin.Handler(), adminport.WriteTimeout)
	if ls.probes != nil {
		p.probesAddr = ls.probes.Addr().String()
		p.serveAdmin("probes", ls.probes, p.admin.Probes(), adminport.ProbesWriteTimeout)
	}
	return nil
}

// serveAdmin serves what operators and probes ask. It ends after everything else, by stop.
func (p *Process) serveAdmin(name string, ln net.Listener, h http.Handler, write time.Duration) {
	s := adminport.NewServer(h, write, p.log)
	p.adminServers = append(p.adminServers, s)
	go func() {
		if err := s.Serve(adminport.LimitConns(ln)); !errors.Is(err, http.ErrServerClosed) {
			p.life.Fail(name, err)
		}
	}()
}

// Stop ends all components, then the admin port. It waits for no app.
func (p *Process) Stop() error {
	p.life.Hurry()
	return p.stopAfterDrain()
}

// stopAfterDrain is stop after the drain of apps.
func (p *Process) stopAfterDrain() error {
	err := p.life.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), adminStopTimeout)
	defer cancel()
	for _, s := range p.adminServers {
		// An answer that takes longer, such as a profile, is cut without that being a failure.
		if adminErr := s.Shutdown(ctx); adminErr != nil {
			_ = s.Close() // the listener is closed already
		}
	}
	return err
}
