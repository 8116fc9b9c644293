// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/history"
	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
)

// startHistory opens the history: in memory alone, unless there is to be a file. No guarantee
// depends on it, so a directory that cannot be written fails no start.
func (p *Process) startHistory() {
	c := history.Config{
		Directory: historyDirectory(p.cfg, stateFolder),
		Keep:      p.cfg.History.Keep,
		MaxSize:   p.cfg.History.MaxSize,
		Metrics:   p.registry,
		Missing:   p.missing,
		NoMonitor: !p.role.Monitor,
	}
	if p.shared != nil {
		c.Shared = p.shared.History()
	}
	h := p.openHistory(c)
	if h == nil {
		h = history.InMemory(c)
	}
	p.admin.History = h
	p.life.Background("history", h.Run)
}

// openHistory opens the file of the history; nil if there is none.
func (p *Process) openHistory(c history.Config) *history.History {
	if c.Directory == "" {
		return nil
	}
	log := p.log.Named("history")
	writable := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "overdue_history_writable", Help: "Whether the file of the history can be written: 0 after a write that failed, or during one that takes longer than 10 s. What is not written waits in memory.",
	})
	writable.Set(1)
	c.Changed = func(err error) {
		if err != nil {
			writable.Set(0)
			log.Warn("history cannot be written, trying again", zap.Error(err), zap.String("directory", c.Directory), zap.String("next", "check the disk"))
			return
		}
		writable.Set(1)
		log.Info("history is written again")
	}
	h, aside, err := history.Open(c)
	if aside != "" {
		log.Warn("history was damaged and is moved aside, a new one begins", zap.String("file", aside))
	}
	if err != nil {
		log.Warn("history is off", zap.Error(err), zap.String("next", "give it a directory that this process can write, in history.directory, or set history.enabled: false"))
		return nil
	}
	p.registry.MustRegister(writable, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "overdue_history_dropped_total", Help: "Missed deadlines that the history does not have, because its file could not be written, or not fast enough.",
	}, func() float64 { return float64(h.Dropped()) }))
	return h
}

// missing returns an error if the namespace says that it has no such queue, topic or subscription.
// known are names that may have been meant.
func (p *Process) missing(ctx context.Context, name string, known []string) error {
	place, err := dlq.ParsePlace(name)
	if err != nil {
		return nil // who asks has checked it
	}
	describe := p.describe
	if p.broker != nil { // a queue that would be made on demand is not there
		describe = catalog.NewEmbeddedSource(p.broker.Broker, false).Read
	}
	ctx, cancel := context.WithTimeout(ctx, missingTimeout)
	defer cancel()
	info, answer := describe(ctx, place.Entity)
	return deadlines.Missing(place, info, answer, func() []string { return append(p.names(), known...) })
}

// missingTimeout is shorter than what a command waits for an answer of the history.
const missingTimeout = 3 * time.Second

// stateFolder is where the image and the units of systemd keep what outlives a process.
const stateFolder = "/var/lib/overdue"

// historyDirectory returns where the history is, "" for none. Without a setting it lies where the
// process has a place for its state: as systemd says, in the journal, or in stateFolder.
func historyDirectory(c *config.Config, stateFolder string) string {
	switch {
	case !c.History.Enabled:
		return ""
	case c.History.Directory != "":
		return c.History.Directory
	case c.StateDirectory != "":
		return filepath.Join(c.StateDirectory, "history")
	case c.OnMonitorDown == config.OnMonitorDownPass && c.Journal.Directory != "":
		return filepath.Join(c.Journal.Directory, "history")
	}
	if info, err := os.Stat(stateFolder); err != nil || !info.IsDir() {
		return ""
	}
	return filepath.Join(stateFolder, "history")
}
