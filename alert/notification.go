// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// samples is how many events a notification shows.
const samples = 5

// A Notification reports a group of events at once: ten thousand missed deadlines are one.
type Notification struct {
	// Key identifies the group in all its notifications. PagerDuty calls it a dedup key.
	Key      string
	Source   string // sb://<namespace>
	Labels   map[string]string
	Resolved bool // no event came for a while; Count is 0

	Count    int           // events since the previous notification; 0 if it only repeats that one
	Total    int           // events since the group fires, including Count
	Since    time.Time     // of the first event since the group fires
	Last     time.Time     // of the latest event
	Oldest   *Event        // the one with the earliest deadline, of those in Count
	WorstLag time.Duration // of those in Count
	Samples  []Event       // at most five of those in Count, by deadline

	DeadLetters        *DeadLetters // of a group of missed deadlines that is resolved; nil if not known
	Dashboard, Runbook string       // links, filled in by the sink; "" = none
}

// DeadLetters describes the dead-letter queue of an entity, or those of a topic's subscriptions.
type DeadLetters struct {
	Count  int       // all of them
	More   bool      // there are more, which were not counted
	Missed int       // of Count, those that missed a deadline
	Time   time.Time // when they were counted

	Subscriptions []string // of a topic: those that have dead letters
}

// id identifies n and is the same when it is sent again.
func (n Notification) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d\n%d\n%d", n.Key, n.state(), n.Total, n.Since.UnixMilli(), n.Last.UnixMilli()))
	return hex.EncodeToString(sum[:16])
}

// trace is the traceparent of a notification about a single event, "" of any other.
func (n Notification) trace() string {
	if n.Count != 1 || len(n.Samples) != 1 {
		return ""
	}
	return n.Samples[0].Traceparent
}

// A Notifier delivers notifications. Notify returns nil once the sink has accepted n for good. Its
// errors are those of an [Alerter].
type Notifier interface {
	Name() string
	Notify(ctx context.Context, n Notification) error
}

// groupKey is a hash, since sinks bound its length, and the names in it are nobody else's business.
func groupKey(source, sink, group string) string {
	sum := sha256.Sum256([]byte(source + "\x02" + sink + "\x02" + group))
	return "overdue-" + hex.EncodeToString(sum[:16])
}

// severity is critical, error, warning or info. missed is the severity of a missed deadline, unless
// the entity has one of its own. A deadline that is near, and a blind time that is over, are warnings
// at most.
func (n Notification) severity(missed string) string {
	if own := n.Labels[labelSeverity]; slices.Contains(severities, own) { // digests may come from outside
		missed = own
	}
	isMild := n.Labels["type"] == TypeNear || n.Labels["type"] == TypeBlind
	if isMild && (missed == "critical" || missed == "error") {
		return "warning"
	}
	return missed
}
