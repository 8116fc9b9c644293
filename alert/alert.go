// SPDX-License-Identifier: Apache-2.0

package alert

import "context"

// An Alerter takes events to those who have to know. Alert returns nil once the sink has
// taken the event for good. An error made with backoff.Permanent or backoff.RetryAfter says
// when it is worth trying again.
type Alerter interface {
	Name() string // in logs, metrics and companions; each sink has its own
	Alert(ctx context.Context, e Event) error
}
