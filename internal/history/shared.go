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
	"overdue/internal/slack"
)

// Scopes of an answer: what it was put together from.
const (
	ScopeProcess = "process" // there is no Redis
	ScopeFleet   = "fleet"   // all processes that share a Redis
	ScopeAlone   = "alone"   // Redis does not answer
)

// sharedSlack begins the names of the counts that processes share: entity, NUL, name of a number.
const sharedSlack = "slack\x00"

// share adds what has just been written to the history of the fleet. What Redis does not take is
// in the file of this process alone.
func (h *History) share(ctx context.Context, b batch, now time.Time) {
	if h.cfg.Shared == nil || len(b.events)+len(b.slack) == 0 {
		return
	}
	var missed []string
	for i := range b.events {
		if v, err := json.Marshal(&b.events[i]); err == nil && len(v) <= redisstore.MostRecord {
			missed = append(missed, string(v))
		}
	}
	counts := map[string]uint64{}
	for p, c := range b.slack {
		c.Each(func(name string, n uint64) { counts[sharedSlack+p.entity+"\x00"+name] += n })
	}
	// That Redis fails is reported where its circuit is.
	_ = h.cfg.Shared.Add(ctx, missed, now, counts, h.cfg.Keep)
}

// FleetMissed is Missed for all processes that share a Redis, as far as that answers.
func (h *History) FleetMissed(ctx context.Context, since time.Time, match func(*alert.Event) bool, limit int) (found []alert.Event, scope string, err error) {
	if found, err = h.Missed(since, match, limit); err != nil || h == nil || h.cfg.Shared == nil {
		return found, ScopeProcess, err
	}
	records, err := h.cfg.Shared.Missed(ctx)
	if err != nil {
		return found, ScopeAlone, nil
	}
	known := map[string]bool{}
	for i := range found {
		known[found[i].ID] = true
	}
	for _, r := range records {
		var e alert.Event
		if json.Unmarshal([]byte(r), &e) != nil || known[e.ID] || e.Data.Deadline.Unix() < since.Unix() || !match(&e) {
			continue // somebody else wrote it, or it is known, or not asked for
		}
		known[e.ID] = true
		found = append(found, e)
	}
	slices.SortStableFunc(found, func(a, b alert.Event) int { return b.Data.Deadline.Compare(a.Data.Deadline) })
	return found[:min(len(found), limit)], ScopeFleet, nil
}

// FleetSlack is Slack for all processes that share a Redis, as far as that answers. It counts whole
// hours then.
func (h *History) FleetSlack(ctx context.Context, since, now time.Time, matches func(entity string) bool) (found []slack.Summary, scope string, err error) {
	if found, err = h.Slack(since, matches); err != nil || h == nil || h.cfg.Shared == nil {
		return found, ScopeProcess, err
	}
	if first := now.Add(-h.cfg.Keep); since.Before(first) {
		since = first
	}
	counts, err := h.cfg.Shared.Counts(ctx, since, now)
	if err != nil {
		return found, ScopeAlone, nil
	}
	spelled, sums := map[string]string{}, map[string]slack.Counts{}
	for name, n := range counts {
		entity, number, ok := strings.Cut(strings.TrimPrefix(name, sharedSlack), "\x00")
		if !ok || !strings.HasPrefix(name, sharedSlack) || !matches(entity) {
			continue
		}
		key := strings.ToLower(entity)
		if _, ok := sums[key]; !ok {
			sums[key], spelled[key] = slack.NewCounts(), entity
		}
		c := sums[key]
		c.Add(number, n)
		sums[key], spelled[key] = c, min(spelled[key], entity)
	}
	// Redis may have lost something, and then this process may know more.
	for i := range found {
		key := strings.ToLower(found[i].Entity)
		if c, ok := sums[key]; ok && c.Left.Count() > found[i].Count {
			found[i] = c.Summarize(found[i].Entity)
		}
		delete(sums, key)
	}
	for key, c := range sums {
		found = append(found, c.Summarize(spelled[key]))
	}
	slices.SortFunc(found, func(a, b slack.Summary) int { return cmp.Compare(a.Entity, b.Entity) })
	return found, ScopeFleet, nil
}
