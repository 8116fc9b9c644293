// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// samples is how many events a page shows.
const samples = 5

// A Notification tells of a group of events at once. Ten thousand missed deadlines are one page.
type Notification struct {
	// Key is the same for all pages of a group, and that of no other group: what PagerDuty calls a dedup key.
	Key      string
	Source   string // sb://<namespace>
	Labels   map[string]string
	Resolved bool // nothing has happened for a while; Count is 0

	Count    int           // events since the page before; 0 when a sink is only reminded
	Total    int           // events since the group fires, those included
	Since    time.Time     // when the first of all happened
	Last     time.Time     // when the latest happened
	Oldest   *Event        // the one with the earliest deadline, of those that Count counts
	WorstLag time.Duration // of them
	Samples  []Event       // at most five of them, by deadline
}

// A Notifier takes pages of groups to somebody. Notification returns nil once the sink has taken the page for good; for errors
// see [Alerter].
type Notifier interface {
	Name() string
	Notify(ctx context.Context, n Notification) error
}

// pageKey is short, since sinks bound it, and tells nothing of what it names.
func pageKey(source, sink, group string) string {
	sum := sha256.Sum256([]byte(source + "\x02" + sink + "\x02" + group))
	return "overdue-" + hex.EncodeToString(sum[:16])
}
