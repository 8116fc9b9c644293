// SPDX-License-Identifier: Apache-2.0

package brokertest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"overdue/internal/broker/queue"
)

// kept is what a SlowDisk has: a model of a directory.
type kept struct {
	highest  uint32
	entities map[uint32][]byte
	queues   map[uint32]*keptQueue
}

type keptQueue struct {
	last     int64
	messages map[int64]queue.Change  // by record
	states   map[string]queue.Change // by session
	sent     map[string]queue.Change // by message-id
}

func (k *kept) queue(id uint32) *keptQueue {
	if k.queues == nil {
		k.queues = make(map[uint32]*keptQueue)
	}
	if k.queues[id] == nil {
		k.queues[id] = &keptQueue{
			messages: make(map[int64]queue.Change),
			states:   make(map[string]queue.Change),
			sent:     make(map[string]queue.Change),
		}
	}
	return k.queues[id]
}

func (k *kept) clone() kept {
	c := kept{highest: k.highest, entities: maps.Clone(k.entities), queues: make(map[uint32]*keptQueue)}
	for id, q := range k.queues {
		c.queues[id] = &keptQueue{
			last:     q.last,
			messages: maps.Clone(q.messages),
			states:   maps.Clone(q.states),
			sent:     maps.Clone(q.sent),
		}
	}
	return c
}

// stepOf keeps a step of the queue with this number.
func stepOf(id uint32, s *queue.Step) func(*kept) {
	last, changes := s.Last, slices.Clone(s.Changes)
	return func(k *kept) {
		q := k.queue(id)
		if last != 0 {
			q.last = last
		}
		for _, c := range changes {
			c.Locked = false
			switch c.Fate {
			case queue.Removed:
				delete(q.messages, c.Record)
			case queue.Changed:
				was := q.messages[c.Record]
				c.Fate, c.MessageID, c.Body = queue.Added, was.MessageID, was.Body
				q.messages[c.Record] = c
			case queue.Added:
				q.messages[c.Record] = c
			case queue.StateSet:
				if q.states[c.SessionID] = c; len(c.Body) == 0 {
					delete(q.states, c.SessionID)
				}
			case queue.IDSent:
				q.sent[c.MessageID] = c
			case queue.IDsExpired:
				maps.DeleteFunc(q.sent, func(_ string, s queue.Change) bool { return s.EnqueuedTime.Before(c.EnqueuedTime) })
			}
		}
	}
}

// A report is one change that a disk hears of.
type report struct {
	keep  func(*kept)
	whole bool // no Hold lasts after it: power may be lost here
}

func (d *SlowDisk) reportLocked(keep func(*kept)) {
	d.dirty = true
	d.pending = append(d.pending, report{keep, d.holders == 0})
}

// PowerLost is the disk as the next process finds it: with what was synced.
func (d *SlowDisk) PowerLost() *SlowDisk { return d.Crashes()[0] }

// Crashes are the disks that a loss of power can leave now: with what was synced, and with more and
// more of what was reported since.
func (d *SlowDisk) Crashes() []*SlowDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	growing := d.kept.clone()
	all := []*SlowDisk{{Prompt: d.Prompt, kept: growing.clone()}}
	for _, r := range d.pending {
		if r.keep(&growing); r.whole {
			all = append(all, &SlowDisk{Prompt: d.Prompt, kept: growing.clone()})
		}
	}
	return all
}

// PutEntity implements broker.Disk.
func (d *SlowDisk) PutEntity(id uint32, description []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	description = bytes.Clone(description)
	d.reportLocked(func(k *kept) {
		if k.entities == nil {
			k.entities = make(map[uint32][]byte)
		}
		k.entities[id] = description
		k.highest = max(k.highest, id)
	})
}

// Drop implements broker.Disk.
func (d *SlowDisk) Drop(id uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reportLocked(func(k *kept) {
		delete(k.entities, id)
		delete(k.queues, id)
	})
}

// Entities implements broker.Disk.
func (d *SlowDisk) Entities(each func(id uint32, description []byte) error) (highest uint32, err error) {
	d.mu.Lock()
	k := d.kept.clone()
	d.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(k.entities)) {
		if err := each(id, k.entities[id]); err != nil {
			return 0, err
		}
	}
	return k.highest, nil
}

// Load implements broker.Disk.
func (d *SlowDisk) Load(id uint32, each func(*queue.Change) error) (last int64, err error) {
	d.mu.Lock()
	k := d.kept.clone()
	d.mu.Unlock()
	q := k.queue(id)
	byTime := func(a, b queue.Change) int { return a.EnqueuedTime.Compare(b.EnqueuedTime) }
	all := slices.SortedFunc(maps.Values(q.messages), func(a, b queue.Change) int { return cmp.Compare(a.Record, b.Record) })
	all = slices.Concat(all, slices.SortedFunc(maps.Values(q.states), byTime), slices.SortedFunc(maps.Values(q.sent), byTime))
	for i := range all {
		if c := &all[i]; c.Fate == queue.Added {
			c.MessageID, c.Body = "", nil
		}
		if err := each(&all[i]); err != nil {
			return 0, err
		}
	}
	return q.last, nil
}
