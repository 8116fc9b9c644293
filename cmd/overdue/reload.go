// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// live are the settings that a running process takes up; all others need a restart. A list counts with what stands in it.
var live = []string{"log.level", "monitor.deadline", "monitor.entities", "alerts", "listen.keys"}

// isLive reports whether a setting of the table is one of them.
func isLive(path string) bool {
	return slices.ContainsFunc(live, func(l string) bool { return path == l || strings.HasPrefix(path, l+"[]") })
}

// A reloader puts a changed configuration into force as far as that goes in a running process. What is wrong with a new
// one changes nothing: it is in force as a whole, or not at all.
type reloader struct {
	p    *process
	load func() (*config, error)

	reloads          *prometheus.CounterVec
	successful, last prometheus.Gauge
}

// newReloader makes the reloader of a process. load reads file, environment and flags anew.
func newReloader(p *process, load func() (*config, error)) *reloader {
	r := &reloader{
		p: p, load: load,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_config_reloads_total", Help: "Configurations that were read while the process ran, by reason (file, signal) and result (ok, refused).",
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
	files, err := watchFiles(r.p.current().files())
	if err != nil {
		r.p.log.Warn("files of the configuration are not watched", zap.Error(err), zap.String("next", "send SIGHUP when they have changed"))
	} else {
		defer files.close()
	}
	// What has changed between the start and the watch was not seen.
	if c, err := r.load(); err != nil || len(differing(r.p.current(), c)) > 0 {
		r.reload("file")
	}
	for {
		reason := "signal"
		select {
		case <-hup:
		case <-files.changed():
			reason = "file"
		case <-ctx.Done():
			return nil
		}
		r.reload(reason)
		files.follow(r.p.current().files())
	}
}

// reload reads the configuration and takes it up, or says why not.
func (r *reloader) reload(reason string) {
	log := r.p.log.With(zap.String("reason", reason))
	next, err := r.load()
	var changed, restart []string
	if err == nil {
		changed, restart, err = r.p.adopt(next)
	}
	if err != nil {
		r.successful.Set(0)
		r.reloads.WithLabelValues(reason, "refused").Inc()
		log.Error("configuration refused, the one before stays in force", zap.Error(err))
		return
	}
	r.succeeded()
	r.reloads.WithLabelValues(reason, "ok").Inc()
	log.Info("configuration reloaded", zap.Strings("changed", changed))
	if len(restart) > 0 {
		log.Warn("changed settings need a restart", zap.Strings("settings", restart))
	}
}

// reloads reports whether there is anything to reload: what comes from the environment and from flags alone stays.
func (c *config) reloads() bool { return len(c.files()) > 0 }

// excluded reports that an entity will never be monitored. What a file does not list it may list later on.
func (p *process) excluded(name string) bool {
	if p.reloads {
		return strings.EqualFold(name, p.cfg.MonitorQueue)
	}
	return p.knowledge.excluded(name)
}

// current is the configuration in force.
func (p *process) current() *config {
	if c := p.admin.current.Load(); c != nil {
		return c
	}
	return p.cfg
}

// adopt puts what is live of next into force. restart names the settings that differ and have to wait for that.
func (p *process) adopt(next *config) (changed, restart []string, err error) {
	before := p.current()
	for _, key := range differing(before, next) {
		if !isLive(key) {
			restart = append(restart, key)
		}
	}
	c := before.with(next)
	var rack []racked
	if p.sinks != nil {
		if rack, err = p.sinks.fill(c); err != nil {
			return nil, nil, err
		}
	}
	level, err := zapcore.ParseLevel(c.Log.Level)
	if err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	if p.proxy != nil {
		if (len(c.Listen.Keys) == 0) != (len(before.Listen.Keys) == 0) {
			// Whether a door asks for keys is decided when it opens, and must not change by the way.
			restart = append(restart, "listen.keys")
			c.keep("listen.keys", before)
			c.Listen.Keys = before.Listen.Keys
		} else if err := p.proxy.SetKeys(c.doorKeys()); err != nil {
			return nil, nil, err
		}
	}
	// From here on nothing can fail.
	changed = changes(before, c)
	p.admin.current.Store(c)
	if p.knowledge != nil {
		p.knowledge.wish(c)
	}
	if p.sinks != nil {
		p.worker.SetAlerters(p.sinks.take(rack))
		p.worker.SetAdopted(c.adoptions())
	}
	if c.Log.Level != before.Log.Level { // PUT /loglevel may have set another, for a while
		p.admin.level.SetLevel(level)
	}
	return changed, restart, nil
}

// with is c with what is live of next.
func (c *config) with(next *config) *config {
	all := *c
	all.Log.Level, all.Monitor, all.Alerts, all.Listen.Keys = next.Log.Level, next.Monitor, next.Alerts, next.Listen.Keys
	all.raw, all.origin = cloned(c.raw), map[string]string{}
	for key, place := range c.origin {
		all.origin[key] = place
	}
	for _, path := range live {
		all.keep(path, next)
	}
	all.watchCanary()
	return &all
}

// keep makes what c shows of a setting, and of where it came from, that of another configuration.
func (c *config) keep(path string, from *config) {
	put(c.raw, path, at(from.raw, path))
	below := func(key string) bool {
		rest, ok := strings.CutPrefix(key, path)
		return ok && (rest == "" || rest[0] == '[')
	}
	for key := range c.origin {
		if below(key) {
			delete(c.origin, key)
		}
	}
	for key, place := range from.origin {
		if below(key) {
			c.origin[key] = place
		}
	}
}

// at is the value under a dotted key.
func at(m map[string]any, key string) any {
	head, rest, nested := strings.Cut(key, ".")
	if !nested {
		return m[head]
	}
	inner, _ := m[head].(map[string]any)
	return at(inner, rest)
}

// cloned copies the sections of a configuration; lists and values are shared, and never changed in place.
func cloned(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for key, v := range m {
		if inner, ok := v.(map[string]any); ok {
			v = cloned(inner)
		}
		c[key] = v
	}
	return c
}

// differing names the settings in which two configurations differ, what files hold among it, in the order of config.
func differing(a, b *config) (keys []string) {
	var walk func(x, y reflect.Value, path string)
	walk = func(x, y reflect.Value, path string) {
		for i := range x.NumField() {
			f := x.Type().Field(i)
			name := strings.TrimPrefix(path+"."+f.Tag.Get("koanf"), ".")
			switch {
			case !f.IsExported():
			case f.Type.Kind() == reflect.Struct:
				walk(x.Field(i), y.Field(i), name)
			case !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()):
				keys = append(keys, name)
			}
		}
	}
	walk(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), "")
	if !reflect.DeepEqual(a.Broker.emulator, b.Broker.emulator) && !slices.Contains(keys, "broker.emulatorConfig") {
		keys = append(keys, "broker.emulatorConfig")
	}
	return keys
}

// changes says what differs in what is live, with the names of those elements of lists that do.
func changes(a, b *config) []string {
	all := []string{}
	if a.Log.Level != b.Log.Level {
		all = append(all, fmt.Sprintf("log.level is %s, was %s", b.Log.Level, a.Log.Level))
	}
	if a.Monitor.Deadline != b.Monitor.Deadline {
		all = append(all, fmt.Sprintf("monitor.deadline is %s, was %s", b.Monitor.Deadline, a.Monitor.Deadline))
	}
	all = append(all, elements("monitor.entities", a.Monitor.Entities, b.Monitor.Entities, func(e entityConfig) string { return e.name() })...)
	nameless := func(all []alertConfig) []alertConfig {
		all = slices.Clone(all)
		for i := range all {
			all[i].key = ""
		}
		return all
	}
	all = append(all, elements("alerts", nameless(a.Alerts), nameless(b.Alerts), func(s alertConfig) string { return s.Name })...)
	return append(all, elements("listen.keys", a.Listen.Keys, b.Listen.Keys, func(k doorKeyConfig) string { return k.Name })...)
}

// elements says which elements of a list are new, others or gone, by name. No value is shown: there are secrets among them.
func elements[T any](key string, a, b []T, name func(T) string) (all []string) {
	for _, after := range b {
		i := slices.IndexFunc(a, func(before T) bool { return strings.EqualFold(name(before), name(after)) })
		switch {
		case i < 0:
			all = append(all, fmt.Sprintf("%s: %s is new", key, name(after)))
		case !reflect.DeepEqual(a[i], after):
			all = append(all, fmt.Sprintf("%s: %s has changed", key, name(after)))
		}
	}
	for _, before := range a {
		if !slices.ContainsFunc(b, func(after T) bool { return strings.EqualFold(name(before), name(after)) }) {
			all = append(all, fmt.Sprintf("%s: %s is gone", key, name(before)))
		}
	}
	return all
}
