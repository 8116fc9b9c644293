// SPDX-License-Identifier: Apache-2.0

package monitor

import "overdue/monitor/metrics"

// Tally returns the share of this worker in the figures of all processes, since the last call.
func (w *Worker) Tally() metrics.Tally { return w.metrics.Tally() }

// Untally adds missed deadlines back that could not be reported.
func (w *Worker) Untally(missed map[string]int64) { w.metrics.Untally(missed) }
