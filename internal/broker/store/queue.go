// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"sync/atomic"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// Queue is the log of the queue with this number, which is never another's. It is to be called once
// for each.
func (s *Store) Queue(id uint32) queue.Log { return &queueLog{s: s, id: id} }

type queueLog struct {
	s        *Store
	id       uint32
	inMemory atomic.Int64 // bytes of contents, see Keep
}

// Append implements queue.Log.
func (l *queueLog) Append(step *queue.Step) {
	l.s.append(func(r *round) error {
		if step.Last > 0 {
			l.s.number(r, l.id, step.Last)
		}
		if step.OnDisk != nil {
			r.onDisk = append(r.onDisk, step.OnDisk)
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
	switch c.Fate {
	case queue.Added:
		if err := r.setContent(id, c); err != nil {
			return err
		}
		fallthrough
	case queue.Changed:
		if r.value, err = appendMessage(r.value[:0], &c.Stored); err != nil {
			return err
		}
		return r.batch.Set(recordKey(prefixMessage, id, c.Record), r.value, nil)
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
		r.batch.Delete(recordKey(prefixMessage, id, c.Record), nil),
		r.batch.DeleteSized(recordKey(prefixContent, id, c.Record), uint32(c.ContentSize), nil))
}

// setContent copies a body once.
func (r *round) setContent(id uint32, c *queue.Change) error {
	r.value = amqp.AppendString(r.value[:0], c.MessageID)
	op := r.batch.SetDeferred(recordKeySize, len(r.value)+len(c.Body))
	copy(op.Key, recordKey(prefixContent, id, c.Record))
	copy(op.Value[copy(op.Value, r.value):], c.Body)
	return op.Finish()
}

// Load calls each with what Queue.Restore takes: the messages of a queue without their contents, by
// record, all of them Added, then the states of sessions, then message-ids by time. each must not
// keep the Change. Load returns the latest Step.Last. It MUST be called before anything is
// appended. Errors: ErrDamaged, and those of each.
func (s *Store) Load(id uint32, each func(*queue.Change) error) (last int64, err error) {
	s.mu.Lock()
	last = s.last[id]
	s.mu.Unlock()
	c := new(queue.Change) // one for all: there are millions
	for _, part := range []struct {
		lower, upper []byte
		read         func(key, value []byte, c *queue.Change) error
	}{
		{recordsKey(prefixMessage, id), recordsKey(prefixMessage, id+1), readRecord},
		{stateKey(id, ""), stateKey(id+1, ""), readState},
		{sentKeys(id), sentKeys(id + 1), readSent},
	} {
		err := s.scan(part.lower, part.upper, func(key, value []byte) error {
			*c = queue.Change{}
			if err := part.read(key, value, c); err != nil {
				return damaged(key, err)
			}
			return each(c)
		})
		if err != nil {
			return 0, err
		}
	}
	return last, nil
}
