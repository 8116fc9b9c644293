// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/operator/dlq"
	"overdue/internal/plural"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/internal/unreceived"
	"overdue/scheduler"
)

const (
	// unreceivedLooks is how often the doctor looks. Companions that are due stand behind those that
	// are scheduled, and each attempt passes over more of these.
	unreceivedLooks = 3
	// heldPeriod is for how long a companion is due that monitors hold for longer than they need, and
	// maxHeld how many messages are searched for such.
	heldPeriod = time.Minute
	maxHeld    = 2500
)

// unreceived reports companions that are due and that no monitor receives, as processes with a proxy
// notice them. Those that monitors hold are read if some may be due.
func (x *examiner) unreceived(ctx context.Context, n *notes, name string, mayBeDue bool) {
	if x.cfg.CompanionsInRedis {
		return
	}
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var clockErr error
	now := func() time.Time { // of the broker, which is asked once something is due
		m := x.measure(ctx)
		clockErr = m.err
		return time.Now().Add(m.ahead)
	}
	watch, err := unreceived.New(unreceived.Config{Links: x.cfg.Links, Queue: name, Now: now, LastDue: time.Now})
	for range unreceivedLooks {
		if err == nil {
			err = watch.Look(asking)
		}
	}
	if link.Unauthorized(err) {
		return // the check of the right to listen says so
	}
	if err = errors.Join(err, clockErr); err == nil {
		if found := watch.Check(ctx); found != nil {
			n.add(Warning, "unreceived", sentence(found.Error()), fmt.Sprintf("start `overdue monitor` with monitorQueue: %s", x.settingOf(name)))
			return
		}
		if mayBeDue {
			err = x.held(asking, n, name, now())
		}
	}
	if err != nil {
		n.add(Unknown, "unreceived", fmt.Sprintf("It is unknown whether monitors receive its companions: %s.", failure.Reason(err)), "")
	}
}

// held reports what monitors wait for that have companions in hand, as far as it is wrong: an
// entity that does not exist. A message that a consumer has locked is none of that.
func (x *examiner) held(ctx context.Context, n *notes, name string, now time.Time) error {
	counts, read, longest := map[string]int{}, 0, time.Duration(0)
	err := dlq.WalkAt(ctx, x.cfg.Links, name, 0, func(l *dlq.Letter) bool {
		age := now.Sub(l.EnqueuedTime)
		if body, isData := l.Body().([]byte); isData && l.State == link.Active && age > heldPeriod {
			if c, err := scheduler.ParseCompanion(body); err == nil { // others end in the dead letters
				counts[c.Entity]++
				longest = max(longest, age)
			}
		}
		read++
		return read < maxHeld
	})
	var missing []string
	total := 0
	for entity, count := range counts {
		if _, err := x.describe(ctx, entity); errors.Is(err, entities.ErrNotFound) {
			missing = append(missing, entity)
			total += count
		}
	}
	if slices.Sort(missing); total > 0 {
		n.add(Advice, "waiting", fmt.Sprintf("Monitors hold companions that have been due for up to %s: %s for messages on %s, which is not there.",
			duration.Format(longest.Round(time.Second)), plural.Of(total, "companion", "companions"), strings.Join(missing, ", ")),
			"create it again, if it was deleted by mistake; otherwise monitors give these deadlines up after an hour, as unknown")
	}
	return err
}
