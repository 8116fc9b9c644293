// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/history"
)

// startHistory opens the history, if there is to be one. No guarantee depends on it, so a directory
// that cannot be written fails no start.
func (p *Process) startHistory() {
	c := p.cfg.History
	if c.Directory == "" || !p.role.Proxy && !p.role.Monitor {
		return
	}
	log := p.log.Named("history")
	h, aside, err := history.Open(history.Config{
		Directory: c.Directory, Keep: c.Keep, MaxSize: c.MaxSize, Metrics: p.registry,
		Changed: func(err error) {
			if err != nil {
				log.Warn("history cannot be written, it tries on", zap.Error(err), zap.String("next", "check the disk of history.directory"))
				return
			}
			log.Info("history is written again")
		},
	})
	if aside != "" {
		log.Warn("history was damaged and is moved aside, a new one begins", zap.String("file", aside))
	}
	if err != nil {
		log.Warn("history is off", zap.Error(err), zap.String("next", "check history.directory and start again"))
		return
	}
	p.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "overdue_history_dropped_total", Help: "Missed deadlines that the history does not have, because its file could not be written.",
	}, func() float64 { return float64(h.Dropped()) }))
	p.admin.Past.Store(h)
	p.life.Background("history", h.Run)
}
