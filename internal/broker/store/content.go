// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"overdue/internal/broker/queue"
)

// These are the bytes of contents that are kept in memory. A content beyond them is read again when
// it is delivered, and so is all that was there at the start.
const (
	entityContentBytes = 64 << 20
	contentBytes       = 512 << 20 // of all entities
)

// KeepInMemory changes how many bytes of contents are kept in memory, of each entity and of all. It
// is for the time before anything is appended.
func (s *Store) KeepInMemory(ofEntity, ofAll int64) { s.ofEntity, s.ofAll = ofEntity, ofAll }

// Keep implements queue.Log.
func (l *queueLog) Keep(bytes int) bool {
	n := int64(bytes)
	ofEntity, ofAll := l.inMemory.Add(n), l.s.inMemory.Add(n)
	if n <= 0 || ofEntity <= l.s.ofEntity && ofAll <= l.s.ofAll {
		return true
	}
	l.inMemory.Add(-n)
	l.s.inMemory.Add(-n)
	return false
}

// Read implements queue.Log. An error is the end of writing, as a failed write is: what this disk
// still takes, it may not give back either.
func (l *queueLog) Read(records []int64, each func(record int64, c queue.Content)) error {
	l.s.reading.RLock()
	defer l.s.reading.RUnlock()
	if l.s.closed {
		return queue.ErrClosed
	}
	if err := l.read(records, each); err != nil {
		err = fmt.Errorf("%w: queue %d: %w", ErrDamaged, l.id, err)
		l.s.fs.refuse(err)
		return err
	}
	return nil
}

func (l *queueLog) read(records []int64, each func(record int64, c queue.Content)) (err error) {
	it, err := l.s.db.NewIter(&pebble.IterOptions{
		LowerBound: recordsKey(prefixContent, l.id),
		UpperBound: recordsKey(prefixContent, l.id+1),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	at := int64(-1) // the record on which it stands
	for _, record := range records {
		// The limit keeps it from looking for the next one behind all that were removed. Deliveries go
		// from one record to the next, which takes a third of the time of a search.
		key, limit := recordKey(prefixContent, l.id, record), recordKey(prefixContent, l.id, record+1)
		var found pebble.IterValidityState
		if at >= 0 && record == at+1 {
			found = it.NextWithLimit(limit)
		} else {
			found = it.SeekGEWithLimit(key, limit)
		}
		if found != pebble.IterValid || !bytes.Equal(it.Key(), key) {
			at = -1
			continue
		}
		at = record
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("record %d: %w", record, err)
		}
		c, err := readContent(value)
		if err != nil {
			return fmt.Errorf("record %d: %w", record, err)
		}
		each(record, c)
	}
	return nil
}

// CheckContents reads the contents of all messages of a queue. Errors: ErrDamaged, also when one is
// missing, has another size, or belongs to no message.
func (s *Store) CheckContents(id uint32) error {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: recordsKey(prefixContent, id),
		UpperBound: recordsKey(prefixContent, id+1),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	more := it.First()
	_, err = s.Load(id, func(c *queue.Change) error {
		if c.Fate != queue.Added {
			return nil
		}
		if err := checkContent(it, more, c); err != nil {
			return fmt.Errorf("%w: queue %d, record %d: %w", ErrDamaged, id, c.Record, err)
		}
		more = it.Next()
		return nil
	})
	if err == nil && more {
		err = fmt.Errorf("%w: queue %d has the content of a message that is not there", ErrDamaged, id)
	}
	return errors.Join(err, it.Close())
}

func checkContent(it *pebble.Iterator, more bool, c *queue.Change) error {
	if !more {
		return errors.New("its content is missing")
	}
	_, record, err := readRecordKey(it.Key())
	if err != nil {
		return err
	}
	if record != c.Record {
		return fmt.Errorf("its content is missing, there is that of %d", record)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	content, err := readContent(value)
	if err != nil {
		return err
	}
	if size := len(content.MessageID) + len(content.Body); size != c.ContentSize {
		return fmt.Errorf("its content has %d bytes, want %d", size, c.ContentSize)
	}
	return nil
}
