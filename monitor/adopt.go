// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"slices"
	"time"

	"overdue/internal/monitorqueue"
	"overdue/internal/servicebus/entities"
	"overdue/monitor/adopt"
	"overdue/monitor/judge"
)

// newAdopter makes the Adopter of w. What it writes are companions and notes on the monitor queue.
func (w *Worker) newAdopter() *adopt.Adopter {
	cfg := adopt.Config{
		Links: w.cfg.Links, Scheduler: w.cfg.Scheduler, MonitorQueue: w.cfg.MonitorQueue,
		Settings: w.cfg.Settings, Describe: w.cfg.Describe,
		Operations: w.metrics.Operations, Log: w.log,
		Adopted: w.metrics.Adopted,
		Latest:  w.clock.Latest, Busy: func() bool { return w.intake.IsCrowded() || w.isStopping() },
	}
	if w.cfg.Store != nil {
		cfg.HasNote = w.cfg.Store.HasNote
	}
	return adopt.New(cfg)
}

// adoptUnwatched has the entities read whose companions were on a monitor queue that was deleted at
// the instant since, by the clock of the broker, and recreated.
func (w *Worker) adoptUnwatched(queue string, since time.Time) {
	known := slices.Clone(w.cfg.Entities)
	if w.cfg.Known != nil {
		known = append(known, w.cfg.Known()...)
	}
	queues := monitorqueue.Of(w.cfg.MonitorQueue, w.cfg.MonitorQueues)
	w.adopter.RequestAll(slices.DeleteFunc(known, func(name string) bool { return queues.For(name) != queue }), since)
}

// Described takes the description of a queue or topic that any component has read.
func (w *Worker) Described(name string, info *entities.Info) {
	w.adopter.Saw(name, info, time.Time{})
}

// oldestSend returns when the first message may have been sent that rules stand for, by the clock
// of the broker; zero: unknown.
func oldestSend(rules []*rule) (oldest time.Time) {
	for _, rl := range rules {
		sent := []time.Time{rl.ref.From}
		if rl.slot != nil {
			sent = nil
			for _, in := range judge.WindowsOf(rl.slot) {
				sent = append(sent, in.From)
			}
		}
		for _, at := range sent {
			if !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
				oldest = at
			}
		}
	}
	return oldest
}

// SetAdopted replaces the adopted entities. Those that stay continue where they are.
func (w *Worker) SetAdopted(all []adopt.Entity) { w.adopter.Set(all) }
