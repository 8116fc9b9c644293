// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// Queue is the log of the queue with this number, which is never another's.
func (s *Store) Queue(id uint32) queue.Log { return queueLog{s, id} }

type queueLog struct {
	s  *Store
	id uint32
}

// Append implements queue.Log.
func (l queueLog) Append(step *queue.Step) {
	l.s.append(func(r *round) error {
		if step.Last > 0 {
			l.s.number(r, l.id, step.Last)
		}
		for i := range step.Changes {
			if err := r.change(l.id, &step.Changes[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *round) change(id uint32, c *queue.Change) (err error) {
	var value []byte
	switch c.Fate {
	case queue.Added:
		if value, err = appendMessage(r.value[:0], &c.Stored); err != nil {
			return err
		}
		r.value = value
		return r.batch.Set(messageKey(id, c.Record, partWhole), value, nil)
	case queue.Changed:
		if value, err = appendStamps(nil, &c.Stored); err != nil {
			return err
		}
		return r.batch.Set(messageKey(id, c.Record, partStamps), value, nil)
	case queue.StateSet:
		if len(c.Body) == 0 {
			return r.batch.Delete(stateKey(id, c.SessionID), nil)
		}
		return r.batch.Set(stateKey(id, c.SessionID), appendState(nil, c), nil)
	case queue.IDSent:
		return r.batch.Set(sentKey(id, c.EnqueuedTime, c.MessageID), nil, nil)
	case queue.IDsExpired:
		return r.batch.DeleteRange(sentKeys(id), sentKey(id, c.EnqueuedTime, ""), nil)
	}
	// The size lets Pebble find out where room can be given back.
	return errors.Join(
		r.batch.DeleteSized(messageKey(id, c.Record, partWhole), uint32(len(c.Body)), nil),
		r.batch.Delete(messageKey(id, c.Record, partStamps), nil))
}

// Load calls each with what Queue.Restore takes: the messages of a queue, by record, all of them
// Added, then the states of sessions, then message-ids by time. It returns the latest Step.Last. It
// MUST be called before anything is appended. Errors: ErrDamaged, and those of each.
func (s *Store) Load(id uint32, each func(*queue.Change) error) (last int64, err error) {
	s.mu.Lock()
	last = s.last[id]
	s.mu.Unlock()
	for _, part := range []struct {
		lower, upper []byte
		load         func(*pebble.Iterator, func(*queue.Change) error) error
	}{
		{messagesKey(id), messagesKey(id + 1), loadMessages},
		{stateKey(id, ""), stateKey(id+1, ""), loadStates},
		{sentKeys(id), sentKeys(id + 1), loadSent},
	} {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: part.lower, UpperBound: part.upper})
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err := errors.Join(part.load(it, each), it.Close()); err != nil {
			return 0, err
		}
	}
	return last, nil
}

// loadMessages puts together the parts of each message, which stand side by side.
func loadMessages(it *pebble.Iterator, each func(*queue.Change) error) error {
	var c *queue.Change
	deliver := func() error {
		if c == nil {
			return nil
		}
		return each(c)
	}
	for ok := it.First(); ok; ok = it.Next() {
		id, record, part, err := readMessageKey(it.Key())
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		switch {
		case err != nil:
		case part == partWhole:
			if err = deliver(); err != nil {
				return err
			}
			c = &queue.Change{Record: record}
			err = readMessage(value, &c.Stored)
		case part == partStamps && c != nil && c.Record == record:
			r := amqp.NewReader(value)
			readStamps(&r, &c.Stored)
			err = r.Err()
		default:
			err = errors.New("part of a message that is not there")
		}
		if err != nil {
			return fmt.Errorf("%w: queue %d, record %d: %w", ErrDamaged, id, record, err)
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return deliver()
}

func loadStates(it *pebble.Iterator, each func(*queue.Change) error) error {
	return loadOthers(it, each, readState)
}

func loadSent(it *pebble.Iterator, each func(*queue.Change) error) error {
	return loadOthers(it, each, func(k, _ []byte, c *queue.Change) error { return readSent(k, c) })
}

// loadOthers loads what is one record each.
func loadOthers(it *pebble.Iterator, each func(*queue.Change) error, read func(k, value []byte, c *queue.Change) error) error {
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		c := new(queue.Change)
		if err == nil {
			err = read(it.Key(), value, c)
		}
		if err != nil {
			return fmt.Errorf("%w: record %.40x: %w", ErrDamaged, it.Key(), err)
		}
		if err := each(c); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}
