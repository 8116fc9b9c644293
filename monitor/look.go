// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// farAhead ends the window of a reference whose sender did not know the broker's clock.
var farAhead = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// firstPage is the size of the first peek after a seek: what is looked for mostly
// stands within a few messages of its send time.
const firstPage = 50

// want is one message that is looked for.
type want struct {
	number      int64                // its sequence number where it is known, else 0
	ref         *scheduler.Reference // that it stands for
	messageID   string               // otherwise this,
	from, until time.Time            // enqueued within this window
	found       *azservicebus.ReceivedMessage
	spare       *azservicebus.ReceivedMessage // would do if nothing better turns up
}

// find looks for the wanted messages and sets found on those that are there. One read of
// a stretch of the queue serves all whose windows it covers, and ends as soon as they
// are found. better says whether a message that matches is the one that w means, or only a
// spare in case that there is no other.
func (v *view) find(ctx context.Context, wants []*want, better func(*want, *azservicebus.ReceivedMessage) bool) error {
	numbered := make([]*want, 0, len(wants))
	named := make([]*want, 0, len(wants))
	for _, w := range wants {
		if w.number != 0 {
			numbered = append(numbered, w)
		} else {
			if w.until.IsZero() {
				w.until = farAhead
			}
			named = append(named, w)
		}
	}
	if err := v.findNumbered(ctx, numbered); err != nil {
		return err
	}
	return v.findNamed(ctx, named, better)
}

// findNumbered reads the pages on which the wanted numbers stand.
func (v *view) findNumbered(ctx context.Context, wants []*want) error {
	slices.SortFunc(wants, func(a, b *want) int { return cmp.Compare(a.number, b.number) })
	for i := 0; i < len(wants); {
		// As many as may stand on one page: the numbers say how far apart they are at most.
		j := i + 1
		for j < len(wants) && wants[j].number-wants[i].number < pageSize {
			j++
		}
		page, err := v.peek(ctx, wants[i].number, int(wants[j-1].number-wants[i].number)+1)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil // nothing from here on
		}
		last := sequenceNumber(page[len(page)-1])
		for _, m := range page {
			for i < len(wants) && wants[i].number < sequenceNumber(m) {
				i++
			}
			for k := i; k < len(wants) && wants[k].number == sequenceNumber(m); k++ {
				wants[k].found = m
			}
		}
		for i < len(wants) && wants[i].number <= last {
			i++
		}
	}
	return nil
}

// findNamed seeks to the window of the first want and reads on while windows follow
// each other closely, then seeks again.
func (v *view) findNamed(ctx context.Context, wants []*want, better func(*want, *azservicebus.ReceivedMessage) bool) error {
	slices.SortFunc(wants, func(a, b *want) int { return a.from.Compare(b.from) })
	byID := map[string][]*want{}
	for _, w := range wants {
		byID[w.messageID] = append(byID[w.messageID], w)
	}
	for i := 0; i < len(wants); {
		if wants[i].found != nil {
			i++
			continue
		}
		number, err := v.seek(ctx, wants[i].from)
		if err != nil {
			return err
		}
		for size := firstPage; i < len(wants); size = pageSize {
			page, err := v.peek(ctx, number, size)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				return nil // the windows of all others begin even later
			}
			for _, m := range page {
				match(byID[m.MessageID], m, better)
			}
			last := page[len(page)-1]
			number = sequenceNumber(last) + 1
			reached := enqueuedTime(last)
			for i < len(wants) && (wants[i].found != nil || wants[i].until.Before(reached)) {
				i++
			}
			if i < len(wants) && wants[i].from.After(reached) {
				break // a gap: seek across it
			}
		}
	}
	return nil
}

// match gives m to the first of the wants that it fits and that has none yet. To the
// others it is a spare: two companions may speak of one message.
func match(wants []*want, m *azservicebus.ReceivedMessage, better func(*want, *azservicebus.ReceivedMessage) bool) {
	enqueued := enqueuedTime(m)
	given := false
	for _, w := range wants {
		switch {
		case enqueued.Before(w.from) || enqueued.After(w.until):
		case w.found == nil && !given && better(w, m):
			w.found, given = m, true
		case w.spare == nil:
			w.spare = m
		}
	}
}
