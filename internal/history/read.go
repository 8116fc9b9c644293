// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/address"
	"overdue/internal/slack"
)

// Scopes of an answer: what it was put together from.
const (
	ScopeProcess = "process" // there is no Redis
	ScopeFleet   = "fleet"   // all processes that share a Redis
	ScopeAlone   = "alone"   // Redis does not answer
)

const (
	// MaxShown bounds the missed deadlines of one answer.
	MaxShown = 1000
	// MaxPoints bounds the counts of one answer.
	MaxPoints = 10_000
)

// Notifications returns up to 100 notifications of messages with that name, see [address.Names], or
// for "" those of all messages that are in memory. The latest comes first. Notifications by other
// processes have no sinks.
func (h *History) Notifications(ctx context.Context, name string) []Notification {
	match := func(e *alert.Event) bool {
		return name == "" || address.Names(name, e.Data.MessageID, e.Data.SequenceNumber)
	}
	found := h.Find(match, maxShown)
	if !h.HasFile() || name == "" {
		return found
	}
	missed, _, _ := h.Missed(ctx, time.Time{}, match, maxShown) // what cannot be read is left out
	for _, n := range missed {
		if !slices.ContainsFunc(found, n.isSameEvent) && len(found) < maxShown {
			found = append(found, n)
		}
	}
	return found
}

func (n *Notification) isSameEvent(other Notification) bool { return n.Event.ID == other.Event.ID }

// Missed returns missed deadlines since a time that match, of all processes that share a Redis as
// far as that answers: the latest first, up to limit.
func (h *History) Missed(ctx context.Context, since time.Time, match func(*alert.Event) bool, limit int) (found []Notification, scope string, err error) {
	isAsked := func(e *alert.Event) bool {
		return e.ID != "" && e.Blind == nil && e.Data.Deadline.Unix() >= since.Unix() && match(e)
	}
	known := map[string]bool{}
	add := func(n Notification) {
		if isAsked(&n.Event) && !known[n.Event.ID] {
			known[n.Event.ID] = true
			found = append(found, n)
		}
	}
	for _, n := range h.waiting() {
		add(n)
	}
	inMemory := len(found)
	err = h.file.each(kindMissed, since, func(_ time.Time, _ string, v []byte) bool {
		add(decode(v))
		return len(found)-inMemory < limit
	})
	others, scope := sharedMissed(ctx, h.cfg.Shared)
	for _, n := range others {
		add(n)
	}
	slices.SortStableFunc(found, func(a, b Notification) int {
		return b.Event.Data.Deadline.Compare(a.Event.Data.Deadline)
	})
	return found[:min(len(found), limit)], scope, err
}

// Elsewhere returns the latest missed deadlines that other processes have shared through Redis and
// that this one does not have in memory, as far as Redis answers.
func (h *History) Elsewhere(ctx context.Context) []Notification {
	all, _ := sharedMissed(ctx, h.cfg.Shared)
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(all, func(n Notification) bool { return h.byID[n.Event.ID] != nil })
}

// sharedMissed returns the missed deadlines of the fleet, and the scope of an answer with them.
func sharedMissed(ctx context.Context, by *redisstore.History) (all []Notification, scope string) {
	records, scope := sharedRecords(ctx, by, redisstore.MissedRecord, redisstore.MostMissed)
	for _, r := range records {
		var e alert.Event
		if json.Unmarshal([]byte(r), &e) == nil { // else somebody else wrote it
			all = append(all, Notification{Event: e})
		}
	}
	return all, scope
}

// sharedRecords returns records of the fleet, and the scope of an answer with them.
func sharedRecords(ctx context.Context, by *redisstore.History, of redisstore.Record, limit int) (records []string, scope string) {
	if by == nil {
		return nil, ScopeProcess
	}
	records, err := by.Latest(ctx, of, limit)
	if err != nil {
		return nil, ScopeAlone
	}
	return records, ScopeFleet
}

// A Point is how often something happened in a minute.
type Point struct {
	Minute time.Time `json:"minute"`
	Kind   string    `json:"kind"`   // sends, deadlines, outstanding or alerts
	Name   string    `json:"name"`   // the entity, or the sink of alerts
	Result string    `json:"result"` // as the metrics say it; of outstanding none
	Count  uint64    `json:"count"`
}

// Minutes returns the counts of the entities and sinks that match since a time, the latest first, up
// to limit. Of outstanding deadlines it has the highest number of the minute.
func (h *History) Minutes(since time.Time, matches func(name string) bool, limit int) (found []Point, err error) {
	found = []Point{}
	err = h.eachCount(since, func(minute time.Time, s series, c slack.Buckets) bool {
		if !s.isSlack() && matches(s.name) {
			found = append(found, Point{minute, s.kind, s.name, s.result, c[0]})
		}
		return len(found) < limit
	})
	return found, err
}

// eachCount calls do with what was counted since a time, the latest first, until it has enough.
func (h *History) eachCount(since time.Time, do func(minute time.Time, s series, c slack.Buckets) (more bool)) error {
	return h.file.each(kindCount, since, func(minute time.Time, rest string, v []byte) bool {
		of, c, ok := parseCount(rest, v)
		return !ok || do(minute, of, c)
	})
}

// parseCount reads the record of a count. rest is what its key has beyond its minute and kind.
func parseCount(rest string, v []byte) (of series, c slack.Buckets, ok bool) {
	parts := strings.Split(rest, "\x00")
	c, err := slack.Parse(v)
	if err != nil || len(parts) != 3 {
		return series{}, nil, false
	}
	return series{parts[0], parts[1], parts[2]}, c, true
}

// Slack sums up the settlements of each entity that matches, since a time.
func (h *History) Slack(since time.Time, matches func(entity string) bool) ([]slack.Summary, error) {
	sums := settlements{}
	err := h.eachCount(since, func(_ time.Time, s series, c slack.Buckets) bool {
		if matches(s.name) {
			sums.add(s, c)
		}
		return true
	})
	return sums.summarize(), err
}

// settlements are those of entities, by their names in lower case.
type settlements map[string]entitySettlements

type entitySettlements struct {
	entity string // as it is spelled
	slack.Settlements
}

// add adds the counts of a series, if it is one of settlements.
func (s settlements) add(of series, c slack.Buckets) {
	if !of.isSlack() {
		return
	}
	key := strings.ToLower(of.name)
	sum, known := s[key]
	if !known {
		sum = entitySettlements{of.name, slack.Settlements{Left: slack.Buckets{}, Taken: slack.Buckets{}}}
	}
	if of.kind == kindLeft {
		sum.Left.Merge(c)
	} else {
		sum.Taken.Merge(c)
	}
	sum.entity = min(sum.entity, of.name)
	s[key] = sum
}

func (s settlements) summarize() []slack.Summary {
	found := []slack.Summary{}
	for _, sum := range s {
		found = append(found, sum.Summarize(sum.entity))
	}
	slices.SortFunc(found, func(a, b slack.Summary) int { return cmp.Compare(a.Entity, b.Entity) })
	return found
}
