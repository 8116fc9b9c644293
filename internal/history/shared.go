// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/notifications"
	"overdue/internal/redisstore"
	"overdue/internal/slack"
)

// Scopes of an answer: what it was put together from.
const (
	ScopeProcess = "process" // there is no Redis
	ScopeFleet   = "fleet"   // all processes that share a Redis
	ScopeAlone   = "alone"   // Redis does not answer
)

// sharedSlack begins the names of the counts that processes share: entity, NUL, which number of
// slack.Counts.
const sharedSlack = "cells\x00"

// share adds what has just been written to the history of the fleet. What Redis does not take is
// in the file of this process alone.
func (h *History) share(ctx context.Context, b batch, now time.Time) {
	if h.cfg.Shared == nil {
		return
	}
	var missed []string
	for _, n := range b.missed {
		if v, err := json.Marshal(&n.Event); err == nil && !n.delivered && len(v) <= redisstore.MostRecord {
			missed = append(missed, string(v))
		}
	}
	counts := map[string]uint64{}
	for p, c := range b.counts {
		if p.kind == kindSlack {
			for i, n := range c {
				counts[sharedSlack+p.name+"\x00"+strconv.Itoa(int(i))] += n
			}
		}
	}
	if len(missed)+len(counts) == 0 {
		return
	}
	// That Redis fails is reported where its circuit is.
	_ = h.cfg.Shared.Add(ctx, missed, now, counts, h.cfg.Keep)
}

// FleetMissed is Missed for all processes that share a Redis, as far as that answers.
func (h *History) FleetMissed(ctx context.Context, since time.Time, match func(*alert.Event) bool, limit int) (found []notifications.Notification, scope string, err error) {
	if found, err = h.Missed(since, match, limit); err != nil || h == nil || h.cfg.Shared == nil {
		return found, ScopeProcess, err
	}
	records, err := h.cfg.Shared.Missed(ctx)
	if err != nil {
		return found, ScopeAlone, nil
	}
	known := map[string]bool{}
	for i := range found {
		known[found[i].Event.ID] = true
	}
	for _, r := range records {
		var e alert.Event
		if json.Unmarshal([]byte(r), &e) != nil || known[e.ID] || e.Data.Deadline.Unix() < since.Unix() || !match(&e) {
			continue // somebody else wrote it, or it is known, or not asked for
		}
		known[e.ID] = true
		found = append(found, notifications.Notification{Event: e})
	}
	return latest(found, limit), ScopeFleet, nil
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
		entity, number, _ := strings.Cut(strings.TrimPrefix(name, sharedSlack), "\x00")
		i, err := strconv.ParseUint(number, 10, 16)
		if err != nil || !strings.HasPrefix(name, sharedSlack) || !matches(entity) {
			continue // somebody else wrote it, or it is not asked for
		}
		key := strings.ToLower(entity)
		if sums[key] == nil {
			sums[key], spelled[key] = slack.Counts{}, entity
		}
		sums[key][uint16(i)] += n
		spelled[key] = min(spelled[key], entity)
	}
	// Redis may have lost something, and then this process may know more.
	for i := range found {
		key := strings.ToLower(found[i].Entity)
		if c, ok := sums[key]; ok && c.Settled() > found[i].Count {
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
