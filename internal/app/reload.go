// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"overdue/internal/catalog"
	"overdue/internal/config"
)

// A reloader puts a changed configuration into force as far as that goes in a running process. A
// new one that is wrong changes nothing: it is in force as a whole, or not at all.
type reloader struct {
	p    *Process
	log  *zap.Logger
	load func() (*config.Config, error)

	reloads          *prometheus.CounterVec
	successful, last prometheus.Gauge
}

// newReloader makes the reloader of a process. load reads file, environment and flags again.
func newReloader(p *Process, load func() (*config.Config, error)) *reloader {
	r := &reloader{
		p: p, log: p.log, load: load,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_config_reloads_total", Help: "Configurations that were read while the process ran, by reason (file, signal, retry) and result (ok, refused).",
		}, []string{"reason", "result"}),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_config_last_reload_successful", Help: "Whether the last configuration that was read is in force, but for what needs a restart: 1 or 0.",
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_config_last_reload_success_timestamp_seconds", Help: "When the configuration in force was read, in seconds since 1970.",
		}),
	}
	p.registry.MustRegister(r.reloads, r.successful, r.last)
	r.succeeded()
	return r
}

func (r *reloader) succeeded() {
	r.successful.Set(1)
	r.last.Set(float64(time.Now().UnixMilli()) / 1000)
}

// run reloads on SIGHUP and when a file of the configuration has changed, until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	files, err := watchFiles(r.p.current().Sources.Files())
	if err != nil {
		r.log.Warn("files of the configuration are not watched", zap.Error(err), zap.String("next", "send SIGHUP when they have changed"))
	} else {
		defer files.close()
	}
	// A change between the start and the watch was not seen, and somebody may still write the file.
	if c, err := r.load(); err != nil || len(config.Differing(r.p.current(), c)) > 0 {
		files.recheck()
	}
	reason := "file"
	var retry <-chan time.Time // nil: nothing is tried again
	pause := newBackOff(time.Second, remindEvery)
	for {
		select {
		case <-retry:
			reason = "retry"
		case <-hup:
			if reason = "signal"; files != nil {
				files.recheck() // somebody may still write
				continue
			}
		case <-files.changed():
		case <-ctx.Done():
			return nil
		}
		if retry = nil; r.reload(ctx, reason) {
			pause.Reset()
		} else {
			retry = time.After(pause.NextBackOff())
		}
		reason = "file"
		files.follow(r.p.current().Sources.Files())
	}
}

// reload reads the configuration and takes it up, or says why not. It is not done when the same
// configuration may be taken up later.
func (r *reloader) reload(ctx context.Context, reason string) (done bool) {
	log := r.log.With(zap.String("reason", reason))
	before := r.p.current()
	next, err := r.load()
	if err == nil {
		err = next.CheckComplete(before)
	}
	var changed, restart []string
	if err == nil {
		changed, restart, err = r.adopt(ctx, next)
	}
	if err != nil {
		r.successful.Set(0)
		r.reloads.WithLabelValues(reason, "refused").Inc()
		log.Error("configuration refused, the previous one stays in force", zap.Error(err))
		later := notAccepted{}
		return !errors.As(err, &later)
	}
	r.succeeded()
	r.p.admin.Restart.Store(&restart)
	r.reloads.WithLabelValues(reason, "ok").Inc()
	log.Info("configuration reloaded", zap.Strings("changed", changed))
	if lost := config.Lost(before, r.p.current()); len(lost) > 0 {
		log.Warn("the configuration has less than before", zap.Strings("dropped", lost))
	}
	if len(restart) > 0 {
		log.Warn("changed settings need a restart", zap.Strings("settings", restart))
	}
	return true
}

// adopt puts what is live of next into force. restart names the settings that differ and have to wait for that.
func (r *reloader) adopt(ctx context.Context, next *config.Config) (changed, restart []string, err error) {
	p := r.p
	before := p.current()
	c := before.WithLive(next)
	restart = config.Differing(c, next)
	tokens, err := p.tryCredentials(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	var active []activeSink
	if p.sinks != nil {
		if active, err = p.sinks.fill(c); err != nil {
			return nil, nil, err
		}
	}
	level, err := zapcore.ParseLevel(c.Log.Level)
	if err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	made, err := r.addEntities(before, next, c)
	if err != nil {
		return nil, nil, err
	}
	if p.broker != nil {
		if err := p.broker.setKeys(&c.Broker); err != nil {
			return nil, nil, err
		}
	}
	if p.endpoints.proxy != nil {
		if err := p.endpoints.proxy.SetKeys(c.Listen.SASKeys()); err != nil {
			return nil, nil, err
		}
	}
	// From here on nothing can fail.
	p.useCredentials(c, tokens)
	if p.catalog != nil {
		p.catalog.Reconfigure(c)
	}
	if p.sinks != nil {
		p.worker.SetAlerters(p.sinks.take(active))
		p.worker.SetAdopted(catalog.Adoptions(c))
	}
	if c.Log.Level != before.Log.Level { // PUT /loglevel may have set another, for a while
		p.admin.Level.SetLevel(level)
	}
	p.admin.Current.Store(c) // last: what it shows is in force
	return append(config.Changes(before, c), made...), restart, nil
}

// addEntities makes the entities of the embedded broker that are new in the configuration, and says
// which of those that are there are not as it has them. before and next are as they were read, c is
// what is to be in force.
func (r *reloader) addEntities(before, next, c *config.Config) (made []string, err error) {
	differing := config.Differing(before, next)
	isTheirs := func(key string) bool {
		return key == "broker.emulatorConfig" || key == "broker.queues" || key == "broker.topics"
	}
	if r.p.broker == nil || !slices.ContainsFunc(differing, isTheirs) {
		return nil, nil
	}
	cfg, _ := brokerConfig(c, r.p.role)
	made, kept, err := r.p.broker.Reconfigure(cfg)
	if err != nil {
		return nil, fmt.Errorf("the embedded broker cannot take up its entities: %w", err)
	}
	if len(kept) > 0 {
		r.p.log.Warn("entities of the embedded broker stay as they are", zap.Strings("differences", kept),
			zap.String("next", "change or delete them with the administration API, or restart; with broker.directory a restart keeps them, too"))
	}
	return made, nil
}
