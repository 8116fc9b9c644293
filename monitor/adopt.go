// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"

	"overdue/monitor/adopt"

	"go.uber.org/zap"
)

// newAdopter makes the Adopter of w. What it writes are companions and notes on the monitor queue.
func (w *Worker) newAdopter() *adopt.Adopter {
	cfg := adopt.Config{
		Links: w.cfg.Links, Scheduler: w.cfg.Scheduler, MonitorQueue: w.cfg.MonitorQueue,
		Settings: w.cfg.Settings, Describe: w.cfg.Describe, Subscription: subscriptionPath,
		Operations: w.metrics.operations, Log: w.log,
		Adopted: func(path string, n int) { w.metrics.adopted.WithLabelValues(w.metrics.entity(path)).Add(float64(n)) },
		Latest:  w.latest, Crowded: w.crowded, Stopping: w.isStopping,
	}
	if w.cfg.Store != nil {
		cfg.HasNote = w.cfg.Store.HasNote
	}
	return adopt.New(cfg)
}

// SetAdopted replaces the adopted entities. Those that stay continue where they are.
func (w *Worker) SetAdopted(all []adopt.Entity) { w.adopter.Set(all) }

// adoptPass runs the pass of a note that is due, and settles the note.
func (w *Worker) adoptPass(work context.Context, l lease) {
	w.running.Go(func() {
		defer w.letGo(l)
		outcome, err := w.adopter.Pass(work, l.body())
		what := "completed"
		switch outcome {
		case adopt.DeadLetter:
			w.log.Warn("adopt note refused: it is kept as a dead letter", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.String("message_id", l.id()), zap.Error(err))
			what, err = "dead-lettered", l.deadLetter(work, reasonMalformed, err.Error())
		case adopt.HandBack:
			what, err = "handed back", l.handBack(work)
		default:
			err = l.complete(work)
		}
		if err != nil {
			w.log.Warn("adopt note not "+what+": the pass is repeated", zap.String("monitor_queue", w.cfg.MonitorQueue), zap.Error(err))
		}
	})
}

func (w *Worker) isStopping() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}
