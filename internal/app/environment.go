// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/config"
	"overdue/internal/history"
	"overdue/internal/lifecycle"
	"overdue/internal/redisstore"
	"overdue/internal/web"
)

// An environment is what all components of a process get: its settings, and where they log, count,
// say how they are and are stopped.
type environment struct {
	role     config.Role
	self     redisstore.Process // what tells this process from others
	cfg      *config.Config     // of the start
	log      *zap.Logger
	life     *lifecycle.Lifecycle
	registry *prometheus.Registry
	admin    *adminport.Port
}

func newEnvironment(r config.Role, c *config.Config, log *zap.Logger, level zap.AtomicLevel) *environment {
	e := &environment{
		role:     r,
		cfg:      c,
		log:      log,
		life:     lifecycle.New(log, c.ShutdownTimeout),
		registry: newRegistry(r, namespaceOf(c)),
	}
	registerState(e.registry, e.life)
	e.admin = &adminport.Port{
		Life: e.life, Level: level, Metrics: e.registry, Config: c, Quit: make(chan struct{}, 1),
		History: history.InMemory(history.Config{}),
	}
	registerReady(e)
	registerRestart(e)
	return e
}

// A wakeup wakes the goroutine that waits for it, once however often it has been signalled
// meanwhile.
type wakeup chan struct{}

func newWakeup() wakeup { return make(chan struct{}, 1) }

func (w wakeup) signal() {
	select {
	case w <- struct{}{}:
	default: // it has not been taken yet
	}
}

// current is the configuration in force.
func (e *environment) current() *config.Config { return cmp.Or(e.admin.Current.Load(), e.cfg) }

// addReady adds a check to readiness.
func (e *environment) addReady(name string, ok func(context.Context) error) {
	e.admin.Ready = append(e.admin.Ready, adminport.Check{Name: name, OK: ok})
}

// addOutbound adds a check of what the process depends on.
func (e *environment) addOutbound(name string, ok func(context.Context) error) {
	e.admin.Outbound = append(e.admin.Outbound, adminport.Check{Name: name, OK: ok})
}

// readyChecks are the checks of /readyz, for the dashboard.
func (e *environment) readyChecks() []web.Check {
	return shown(adminport.Ask(context.Background(), e.admin.Ready)) // they answer at once
}

// outboundChecks are those of /healthz/outbound, likewise.
func (e *environment) outboundChecks(ctx context.Context) []web.Check {
	all := e.admin.Outbound
	if sinks := e.admin.Sinks.Load(); sinks != nil {
		all = slices.Concat(all, *sinks)
	}
	return shown(adminport.Ask(ctx, all))
}

// shown is how the dashboard shows outcomes.
func shown(outcomes []adminport.Outcome) (results []web.Check) {
	isDown := slices.ContainsFunc(outcomes, func(o adminport.Outcome) bool {
		return slices.Contains(namespaceReasons, adminport.ReasonOf(o.Err))
	})
	for _, o := range outcomes {
		c := web.Check{Name: o.Name, Failed: o.Err != nil, Message: o.Remark}
		c.Follows = isDown && adminport.ReasonOf(o.Err) == adminport.NotReceiving
		if c.Failed {
			c.Message = o.Err.Error()
		}
		results = append(results, c)
	}
	return results
}

// namespaceReasons are those for which a monitor receives nothing.
var namespaceReasons = []adminport.Reason{adminport.NamespaceDown, adminport.KeyRefused, adminport.MonitorQueueMissing}

// well is nil when this process is ready and the canary, if there is one, comes back.
func (e *environment) well(ctx context.Context) error {
	outcomes := e.admin.Readiness(ctx)
	for _, c := range e.admin.Outbound {
		if c.Name == "canary" {
			outcomes = append(outcomes, adminport.Ask(ctx, []adminport.Check{c})...)
		}
	}
	for _, o := range outcomes {
		if o.Err != nil {
			return fmt.Errorf("%s: %w", o.Name, o.Err)
		}
	}
	return nil
}
