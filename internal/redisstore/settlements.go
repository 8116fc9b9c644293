// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"time"
)

const (
	settlementsTime = time.Second // bound of one exchange; nobody waits for it
	// inboxMost bounds the records that wait for one process, and inboxLife how long: a process that
	// is gone reads none.
	inboxMost        = 16 << 10
	inboxLife        = time.Minute
	settlementsBatch = 1000
)

// Settlements carries records between processes: one that settles a message writes to the one that
// sent it.
type Settlements struct{ c *circuit }

// Settlements returns the exchange of the fleet.
func (s *Store) Settlements() *Settlements {
	key, inbox := s.key("r", "trial"), s.key("i", "trial")
	return &Settlements{s.circuit("index", settlementsTime,
		func(ctx context.Context) error { return putAll(ctx, s.client, []entry{{key, inbox, trialLife}}) },
		func(ctx context.Context) error { _, err := getAll(ctx, s.client, []string{key}); return err },
		func(ctx context.Context) error { return deliver(ctx, s.client, inbox, 1, trialLife, []string{"x"}) },
		func(ctx context.Context) error { _, err := collect(ctx, s.client, inbox, 1); return err },
	)}
}

// Well reports whether Redis answered the last time.
func (m *Settlements) Well() bool { return m.c.well() }

// Announce has records about these keys go to inbox from now on, about each for as long as it
// lives. There are as many lives as keys.
func (m *Settlements) Announce(ctx context.Context, inbox string, keys []string, lives []time.Duration) error {
	return inBatches(len(keys), func(from, to int) error {
		entries := make([]entry, 0, to-from)
		for i := from; i < to; i++ {
			entries = append(entries, entry{m.c.s.key("r", keys[i]), inbox, lives[i]})
		}
		return m.c.do(ctx, func(ctx context.Context) error { return putAll(ctx, m.c.s.client, entries) })
	})
}

// Pass gives a record about each key to the process that has announced it, if one has. There are as
// many records as keys.
func (m *Settlements) Pass(ctx context.Context, keys []string, records [][]byte) error {
	return inBatches(len(keys), func(from, to int) error {
		asked := make([]string, 0, to-from)
		for _, k := range keys[from:to] {
			asked = append(asked, m.c.s.key("r", k))
		}
		return m.c.do(ctx, func(ctx context.Context) error {
			inboxes, err := getAll(ctx, m.c.s.client, asked)
			if err != nil {
				return err
			}
			byInbox := map[string][]string{}
			for i, inbox := range inboxes {
				if inbox != "" {
					byInbox[inbox] = append(byInbox[inbox], string(records[from+i]))
				}
			}
			for inbox, list := range byInbox {
				if err := deliver(ctx, m.c.s.client, m.c.s.key("i", inbox), inboxMost, inboxLife, list); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// Passed takes what lies in inbox, up to a thousand records. Anybody who may write
// to Redis may have written them.
func (m *Settlements) Passed(ctx context.Context, inbox string) (records [][]byte, err error) {
	err = m.c.do(ctx, func(ctx context.Context) error {
		got, err := collect(ctx, m.c.s.client, m.c.s.key("i", inbox), settlementsBatch)
		for _, r := range got {
			records = append(records, []byte(r))
		}
		return err
	})
	return records, err
}

// inBatches calls do with the bounds of each batch of n, until one fails.
func inBatches(n int, do func(from, to int) error) error {
	for from := 0; from < n; from += settlementsBatch {
		if err := do(from, min(from+settlementsBatch, n)); err != nil {
			return err
		}
	}
	return nil
}
