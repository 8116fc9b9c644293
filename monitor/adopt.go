// SPDX-License-Identifier: Apache-2.0

package monitor

import "overdue/monitor/adopt"

// newAdopter makes the Adopter of w. What it writes are companions and notes on the monitor queue.
func (w *Worker) newAdopter() *adopt.Adopter {
	cfg := adopt.Config{
		Links: w.cfg.Links, Scheduler: w.cfg.Scheduler, MonitorQueue: w.cfg.MonitorQueue,
		Settings: w.cfg.Settings, Describe: w.cfg.Describe,
		Operations: w.metrics.Operations, Log: w.log,
		Adopted: w.metrics.Adopted,
		Latest:  w.clock.Latest, Crowded: w.crowded, Stopping: w.isStopping,
	}
	if w.cfg.Store != nil {
		cfg.HasNote = w.cfg.Store.HasNote
	}
	return adopt.New(cfg)
}

// SetAdopted replaces the adopted entities. Those that stay continue where they are.
func (w *Worker) SetAdopted(all []adopt.Entity) { w.adopter.Set(all) }

func (w *Worker) isStopping() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}
