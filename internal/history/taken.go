// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"overdue/alert"
	"overdue/internal/boltcheck"
	"overdue/internal/notifications"
	"overdue/internal/servicebus/address"
)

// A delivery of the event of a missed deadline that a sink took.
type delivery struct {
	deadline    int64 // seconds since 1970, of the event
	event, sink string
	at          time.Time
}

func kept(e *alert.Event) bool { return e.Type == alert.TypeMissed || e.Type == alert.TypeIncomplete }

// Took keeps that a sink took the event of a missed deadline. It never waits for the disk.
func (h *History) Took(e *alert.Event, sink string, at time.Time) {
	if h == nil || !kept(e) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.taken) < maxPending { // otherwise the events themselves are dropped and counted
		h.taken = append(h.taken, delivery{e.Data.Deadline.Unix(), e.ID, sink, at})
		h.noticeHalf(len(h.taken))
	}
}

// Notifications returns missed deadlines of messages with that name, see [address.Names], or of all
// messages for "", and the sinks that took them. Those of other processes have no sinks.
func (h *History) Notifications(ctx context.Context, name string, limit int) []notifications.Notification {
	var events []alert.Event
	var err error
	if name == "" { // as at a start, which does not wait for Redis
		events, err = h.Missed(time.Time{}, func(*alert.Event) bool { return true }, limit)
	} else {
		events, _, err = h.FleetMissed(ctx, time.Time{}, func(e *alert.Event) bool {
			return address.Names(name, e.Data.MessageID, e.Data.SequenceNumber)
		}, limit)
	}
	if err != nil || len(events) == 0 {
		return nil
	}
	found := make([]notifications.Notification, len(events))
	for i := range events {
		found[i].Event = events[i]
	}
	// A file that cannot be read costs the sinks alone.
	_ = boltcheck.Guard(func() error {
		return h.file.db.View(func(tx *bbolt.Tx) error {
			c := tx.Bucket(takenBucket).Cursor()
			for i := range events {
				found[i].TakenBy = takenBy(c, &events[i])
			}
			return nil
		})
	})
	return found
}

func takenBy(c *bbolt.Cursor, e *alert.Event) []notifications.Delivery {
	by := []notifications.Delivery{}
	prefix := string(keyOf(e.Data.Deadline.Unix(), e.ID+"\x00"))
	for k, v := c.Seek([]byte(prefix)); strings.HasPrefix(string(k), prefix) && len(v) == timeLength; k, v = c.Next() {
		at := time.Unix(0, int64(binary.BigEndian.Uint64(v))).UTC()
		by = append(by, notifications.Delivery{Sink: string(k[len(prefix):]), Time: at})
	}
	return by
}
