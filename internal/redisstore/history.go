// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"strconv"
	"time"
)

const (
	historyTime = 2 * time.Second // bound of a question: an operator waits for those that read
	// MostMissed bounds the missed deadlines that the fleet keeps: all together fit into one answer.
	MostMissed = 2000
	// MostRecord bounds each of them, in bytes.
	MostRecord = 8 << 10
	// mostCounts bounds the names that are counted in one hour.
	mostCounts = 10_000
	mostHours  = 367 * 24
	// hoursAtOnce bounds the hours of one question. A full one has 2 MiB at most, since the name of a
	// count has an entity of 260 characters: together they have less than maxAnswer.
	hoursAtOnce = 12
)

// History is what happened in the fleet: the latest missed deadlines as the processes wrote them,
// and counts by the hour.
type History struct{ c *circuit }

// History is that of the fleet.
func (s *Store) History() *History {
	list, hash := s.key("h", "trial", "missed"), s.key("h", "trial", "counts")
	return &History{s.circuit("history", historyTime,
		func(ctx context.Context) error { return deliver(ctx, s.client, list, 1, trialLife, []string{"x"}) },
		func(ctx context.Context) error { _, err := latest(ctx, s.client, list, 1); return err },
		func(ctx context.Context) error {
			return countUp(ctx, s.client, hash, 1, trialLife, map[string]int64{"x": 1})
		},
		func(ctx context.Context) error { return counted(ctx, s.client, map[string]int64{}, hash) },
	)}
}

func (h *History) missed() string { return h.c.s.key("h", "missed") }

func (h *History) hour(at time.Time) string {
	return h.c.s.key("h", strconv.FormatInt(at.Truncate(time.Hour).Unix(), 10))
}

// Add adds missed deadlines, which are kept for a while, and counts in the hour of an instant.
func (h *History) Add(ctx context.Context, missed []string, at time.Time, counts map[string]uint64, keep time.Duration) error {
	return h.c.do(ctx, func(ctx context.Context) error {
		if len(missed) > 0 {
			if err := deliver(ctx, h.c.s.client, h.missed(), MostMissed, keep, missed[max(0, len(missed)-MostMissed):]); err != nil {
				return err
			}
		}
		return countUp(ctx, h.c.s.client, h.hour(at), mostCounts, keep, counts)
	})
}

// Missed returns the latest missed deadlines, the oldest first.
func (h *History) Missed(ctx context.Context) (records []string, err error) {
	err = h.c.do(ctx, func(ctx context.Context) (err error) {
		records, err = latest(ctx, h.c.s.client, h.missed(), MostMissed)
		return err
	})
	return records, err
}

// Counts adds up the counts of the hours from since to until.
func (h *History) Counts(ctx context.Context, since, until time.Time) (map[string]uint64, error) {
	if first := until.Add(-mostHours * time.Hour); since.Before(first) {
		since = first
	}
	sums := map[string]uint64{}
	err := h.c.do(ctx, func(ctx context.Context) error {
		for at := since.Truncate(time.Hour); !at.After(until); {
			var hours []string
			for ; len(hours) < hoursAtOnce && !at.After(until); at = at.Add(time.Hour) {
				hours = append(hours, h.hour(at))
			}
			if err := counted(ctx, h.c.s.client, sums, hours...); err != nil {
				return err
			}
		}
		return nil
	})
	return sums, err
}
