// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/plural"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

const (
	// maxLock is the longest lock duration that Service Bus accepts.
	maxLock = 5 * time.Minute
	// Companions that are due stand behind those that are scheduled. That many are peeked at.
	unreceivedPages, unreceivedPage = 10, 250
)

// unreceived reports companions that are due and that no monitor has received: by the broker's
// clock longer than a lock lasts, and without a delivery that ended. A monitor may still hold them,
// since it renews locks. So the doctor receives one message and gives it back at once: the broker
// hands out the oldest one that nobody holds.
//
// due is how many are due, and lock the lock duration of the queue; both are 0 if not known.
func (x *examiner) unreceived(ctx context.Context, n *notes, name string, due int64, lock time.Duration) {
	if x.cfg.CompanionsInRedis {
		return
	}
	if lock == 0 {
		lock = maxLock
	}
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	all, err := x.undelivered(asking, name)
	switch {
	case link.Unauthorized(err):
		return // the check of the right to listen says so
	case err == nil && len(all) == 0:
		return
	}
	var now time.Time
	var suspects []*link.Message
	free := false
	if err == nil {
		m := x.measure(ctx)
		now, err = time.Now().Add(m.ahead), m.err
		suspects = slices.DeleteFunc(all, func(m *link.Message) bool { return now.Sub(m.EnqueuedTime) <= lock })
	}
	if err == nil && len(suspects) > 0 {
		free, err = x.isFree(asking, name, suspects[0])
	}
	if err != nil {
		n.add(Unknown, "unreceived", fmt.Sprintf("It is unknown whether monitors receive its companions: %s.", failure.Reason(err)), "")
		return
	}
	if len(suspects) == 0 {
		return
	}
	oldest := slices.MinFunc(suspects, func(a, b *link.Message) int { return a.EnqueuedTime.Compare(b.EnqueuedTime) })
	since := span(now.Sub(oldest.EnqueuedTime).Round(time.Second))
	if !free {
		x.held(ctx, n, name, suspects[0].SequenceNumber, since)
		return
	}
	count := max(int64(len(suspects)), due)
	text := fmt.Sprintf("%d companions are due, the oldest for %s, and nobody receives them.", count, since)
	if count == 1 {
		text = fmt.Sprintf("One companion has been due for %s, and nobody receives it.", since)
	}
	n.add(Warning, "unreceived", text,
		fmt.Sprintf("start `overdue monitor` with monitorQueue: %s, or check why the one that runs does not receive", x.settingOf(name)))
}

// undelivered are the companions that are due and have no delivery that ended, in the order of
// their numbers.
func (x *examiner) undelivered(ctx context.Context, name string) (all []*link.Message, err error) {
	p, err := x.cfg.Links.Peeker(ctx, name)
	if err != nil {
		return nil, err
	}
	from := int64(0)
	for range unreceivedPages {
		ms, err := p.Peek(ctx, from, unreceivedPage)
		if err != nil {
			return nil, err // it is closed
		}
		for _, m := range ms {
			from = m.SequenceNumber + 1
			if m.State == link.Active && m.DeliveryCount == 0 {
				all = append(all, m)
			}
		}
		if len(ms) < unreceivedPage {
			break
		}
	}
	p.Close(ctx)
	return all, nil
}

// isFree reports whether nobody holds a companion, or an older one.
func (x *examiner) isFree(ctx context.Context, name string, suspect *link.Message) (bool, error) {
	r, err := x.cfg.Links.BareReceiver(ctx, name, nil)
	if err != nil {
		return false, err
	}
	defer r.Close(ctx)
	m, err := r.Next(ctx)
	if err != nil || m == nil {
		return false, err
	}
	_, err = r.GiveBack(ctx, m)
	return m.SequenceNumber <= suspect.SequenceNumber, err
}

// held reports what monitors wait for that have companions in hand, as far as it is wrong: an
// entity that does not exist. A message that a consumer has locked is none of that.
func (x *examiner) held(ctx context.Context, n *notes, name string, from int64, since string) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p, err := x.cfg.Links.Peeker(ctx, name)
	var encoded [][]byte
	if err == nil {
		encoded, err = p.PeekEncoded(ctx, from, unreceivedPage)
		p.Close(ctx)
	}
	counts := map[string]int{}
	for _, b := range encoded {
		m := link.ReceivedMessage{Encoded: b}
		if c, err := scheduler.ParseCompanion(m.Body()); err == nil { // others end in the dead letters
			counts[c.Entity]++
		}
	}
	var missing []string
	total := 0
	for entity, count := range counts {
		if _, err := x.describe(ctx, entity); errors.Is(err, entities.ErrNotFound) {
			missing = append(missing, entity)
			total += count
		}
	}
	switch slices.Sort(missing); {
	case err != nil:
		n.add(Unknown, "waiting", fmt.Sprintf("Monitors hold companions that have been due for %s, and it is unknown for which entities: %s.", since, failure.Reason(err)), "")
	case total > 0:
		n.add(Advice, "waiting", fmt.Sprintf("Monitors hold companions that have been due for up to %s: %s for messages on %s, which is not there.", since, plural.Of(total, "companion", "companions"), strings.Join(missing, ", ")),
			"create it again, if it was deleted by mistake; otherwise monitors give these deadlines up after an hour, as unknown")
	}
}
