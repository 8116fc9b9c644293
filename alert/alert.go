// SPDX-License-Identifier: Apache-2.0

package alert

import "context"

// An Alerter delivers events. Alert returns nil once the sink has accepted the event for good. An
// error made with backoff.Permanent or backoff.RetryAfter says when another attempt makes sense.
type Alerter interface {
	Name() string // in logs, metrics and companions; unique among the sinks of a process
	Alert(ctx context.Context, e Event) error
}
