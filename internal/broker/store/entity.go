// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// PutEntity keeps the description of an entity under its number, in place of the one that it had.
// Only the broker can read a description. The number is that of the entity's queue.
func (s *Store) PutEntity(id uint32, description []byte) {
	s.append(func(r *round) error {
		err := r.batch.Set(entityKey(id), description, nil)
		if id > s.highest {
			s.highest = id
			err = errors.Join(err, r.batch.Set(highestKey, binary.BigEndian.AppendUint32(nil, id), nil))
			s.number(r, id, 0)
		}
		return err
	})
}

// Drop forgets an entity and its queue with all messages. The queue MUST be closed: what it
// reported afterwards would stay for ever, under a number that no entity has again. Several
// entities that are to go together are dropped under one Hold, which begins before anybody can make
// another in their place.
func (s *Store) Drop(id uint32) {
	s.append(func(r *round) error {
		delete(s.last, id)
		return errors.Join(
			r.batch.Delete(entityKey(id), nil),
			r.batch.DeleteRange(recordsKey(prefixMessage, id), recordsKey(prefixMessage, id+1), nil),
			r.batch.DeleteRange(recordsKey(prefixContent, id), recordsKey(prefixContent, id+1), nil),
			r.batch.DeleteRange(stateKey(id, ""), stateKey(id+1, ""), nil),
			r.batch.DeleteRange(sentKeys(id), sentKeys(id+1), nil),
			r.batch.Delete(numberKey(id), nil))
	})
}

// Entities calls each with the descriptions of all entities, by number, and returns the highest
// number that any entity ever had: the next one is free. It is for the time before anything is
// appended. each must not keep description. Errors: ErrDamaged, and those of each.
func (s *Store) Entities(each func(id uint32, description []byte) error) (highest uint32, err error) {
	s.mu.Lock()
	highest = s.highest
	s.mu.Unlock()
	return highest, s.scan([]byte{prefixEntity}, []byte{prefixEntity + 1}, func(key, description []byte) error {
		if len(key) != len(entityKey(0)) {
			return fmt.Errorf("%w: the key of an entity has %d bytes", ErrDamaged, len(key))
		}
		id := binary.BigEndian.Uint32(key[1:])
		if id > highest {
			return fmt.Errorf("%w: entity %d is above the highest number %d", ErrDamaged, id, highest)
		}
		return each(id, description)
	})
}

// scan calls each with the records from lower to upper, in the order of their keys. each must keep
// neither key nor value. Errors: ErrDamaged, and those of each.
func (s *Store) scan(lower, upper []byte, each func(key, value []byte) error) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return damaged(it.Key(), err)
		}
		if err := each(it.Key(), value); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// damaged says that the record with this key cannot be read.
func damaged(key []byte, err error) error {
	if id, record, bad := readRecordKey(key); bad == nil && key[0] == prefixMessage {
		return fmt.Errorf("%w: queue %d, record %d: %w", ErrDamaged, id, record, err)
	}
	return fmt.Errorf("%w: record %.40x: %w", ErrDamaged, key, err)
}

// readHighest is the start of highest.
func (s *Store) readHighest() error {
	value, err := s.get(highestKey)
	switch {
	case err != nil || value == nil:
		return err
	case len(value) != 4:
		return fmt.Errorf("%w: the highest number of an entity has %d bytes", ErrDamaged, len(value))
	}
	s.highest = binary.BigEndian.Uint32(value)
	return nil
}

// get returns a copy of a value, nil when there is none.
func (s *Store) get(key []byte) ([]byte, error) {
	value, free, err := s.db.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	value = append([]byte{}, value...)
	return value, free.Close()
}
