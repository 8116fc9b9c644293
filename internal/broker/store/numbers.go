// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// reservedNumbers is how far the disk is ahead of the numbers that a queue has given out. Clients
// can see numbers that a full or failing disk never gets, and no later process gives those out
// again. Each has a message in memory, so there are never as many.
const reservedNumbers = 1 << 24

// readNumbers is the start of last. An entity without a number has a queue that has given out none.
func (s *Store) readNumbers() error {
	s.last = make(map[uint32]int64)
	for _, prefix := range []byte{prefixEntity, prefixNumber} {
		if err := s.scan([]byte{prefix}, []byte{prefix + 1}, s.readNumber); err != nil {
			return err
		}
	}
	return nil
}

// readNumber reads a number, or finds an entity.
func (s *Store) readNumber(key, value []byte) error {
	if len(key) != len(numberKey(0)) {
		return fmt.Errorf("%w: the key of a queue has %d bytes", ErrDamaged, len(key))
	}
	id := binary.BigEndian.Uint32(key[1:])
	switch {
	case key[0] == prefixEntity:
		s.last[id] = 0
	case len(value) != 8:
		return fmt.Errorf("%w: the last number of queue %d has %d bytes", ErrDamaged, id, len(value))
	default:
		s.last[id] = int64(binary.BigEndian.Uint64(value))
	}
	return nil
}

// reserveNumbers reserves the numbers that come next in each queue, before one of them is given
// out.
func (s *Store) reserveNumbers() error {
	batch := s.db.NewBatch()
	for id, last := range s.last {
		if err := setNumber(batch, id, last+reservedNumbers); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return batch.Commit(pebble.Sync)
}

func setNumber(batch *pebble.Batch, id uint32, number int64) error {
	return batch.Set(numberKey(id), binary.BigEndian.AppendUint64(nil, uint64(number)), nil)
}

// number says where the numbers of a queue stand after this round.
func (c *committer) number(r *round, id uint32, last int64) {
	c.last[id] = last
	r.numbered[id] = true
}

// reserve puts into a round that is to be written that its queues have numbers to give out.
func (c *committer) reserve(r *round) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range r.numbered {
		if last, there := c.last[id]; there { // it has not been dropped since
			err = errors.Join(err, setNumber(r.batch, id, last+reservedNumbers))
		}
	}
	return err
}

// returnNumbers puts into the last round that no number is reserved any more.
func (c *committer) returnNumbers(r *round) (err error) {
	clear(r.numbered)
	for id, last := range c.last {
		err = errors.Join(err, setNumber(r.batch, id, last))
	}
	return err
}
