// SPDX-License-Identifier: Apache-2.0

package history

import (
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

// share adds what has just been written to the history of the fleet. Entries that Redis does not
// take are in the file of this process alone.
func (h *History) share(ctx context.Context, b batch, now time.Time) {
	if h.cfg.Shared == nil {
		return
	}
	var missed []string
	slices.SortFunc(b.added, func(a, b alert.Event) int { return a.Data.Deadline.Compare(b.Data.Deadline) }) // Redis forgets the first
	for i := range b.added {
		if v, err := json.Marshal(&b.added[i]); err == nil && len(v) <= redisstore.MostRecord {
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

// Slack sums up the settlements of each entity that matches, since a time, for all processes that
// share a Redis, as far as that answers. It counts whole hours then.
func (h *History) Slack(ctx context.Context, since, now time.Time, matches func(entity string) bool) (found []slack.Summary, scope string, err error) {
	sums, err := h.settled(since, matches)
	if err != nil || h == nil || h.cfg.Shared == nil {
		return sums.summarize(), ScopeProcess, err
	}
	if first := now.Add(-h.cfg.Keep); since.Before(first) {
		since = first
	}
	counts, err := h.cfg.Shared.Counts(ctx, since, now)
	if err != nil {
		return sums.summarize(), ScopeAlone, nil
	}
	fleet := settlements{}
	for name, n := range counts {
		entity, number, _ := strings.Cut(strings.TrimPrefix(name, sharedSlack), "\x00")
		i, err := strconv.ParseUint(number, 10, 16)
		if err != nil || !strings.HasPrefix(name, sharedSlack) || !matches(entity) {
			continue // somebody else wrote it, or it is not asked for
		}
		fleet.add(entity, slack.Counts{uint16(i): n})
	}
	for key, ours := range sums { // Redis may have lost something
		if ours.Settled() >= fleet[key].Settled() {
			fleet[key] = ours
		}
	}
	return fleet.summarize(), ScopeFleet, nil
}
