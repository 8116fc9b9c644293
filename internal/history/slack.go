// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"slices"
	"time"

	"overdue/internal/slack"
)

// A slackPoint is an entity in one minute, as seconds since 1970.
type slackPoint struct {
	minute int64
	entity string
}

// sampleSlack reads the meter and adds its increases to the present minute.
func (h *History) sampleSlack(now time.Time) {
	minute := now.Truncate(time.Minute).Unix()
	for entity, all := range h.cfg.Slack.Read() {
		more := all.Since(h.lastSlack[entity])
		h.lastSlack[entity] = all
		if more.Left.Count() == 0 {
			continue
		}
		p := slackPoint{minute, entity}
		if was, ok := h.slack[p]; ok {
			was.Merge(more)
			more = was
		} else if len(h.slack) >= maxSlack {
			h.lose(now)
			continue
		}
		h.slack[p] = more
	}
}

// Slack sums up the settlements of each entity that matches, since a time.
func (h *History) Slack(since time.Time, matches func(entity string) bool) ([]slack.Summary, error) {
	sums := map[string]slack.Counts{}
	err := h.each(slackBucket, since, func(k, v []byte) (bool, error) {
		entity := string(k[timeLength:])
		if !matches(entity) {
			return true, nil
		}
		c, err := slack.Parse(v)
		if err != nil {
			return true, nil // as in Missed
		}
		if was, ok := sums[entity]; ok {
			was.Merge(c)
			c = was
		}
		sums[entity] = c
		return true, nil
	})
	found := []slack.Summary{}
	for entity, c := range sums {
		found = append(found, c.Summarize(entity))
	}
	slices.SortFunc(found, func(a, b slack.Summary) int { return cmp.Compare(a.Entity, b.Entity) })
	return found, err
}
