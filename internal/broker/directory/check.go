// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/store"
)

// Contents are what a directory holds.
type Contents struct {
	Directory string   `json:"directory"`
	Bytes     int64    `json:"bytes"` // of its files
	Entities  []Entity `json:"entities"`
	Total     Entity   `json:"total"`
}

// An Entity is what a directory holds of one: a topic holds no messages itself.
type Entity struct {
	Namespace    string `json:"namespace,omitempty"`
	Path         string `json:"path,omitempty"`
	Active       int    `json:"active"`
	Scheduled    int    `json:"scheduled"`
	Deferred     int    `json:"deferred"`
	DeadLettered int    `json:"deadLettered"`
	Bytes        int64  `json:"bytes"` // of message-ids and bodies
}

// Messages counts all of them.
func (e *Entity) Messages() int { return e.Active + e.Scheduled + e.Deferred + e.DeadLettered }

func (e *Entity) count(m *queue.Stored) {
	e.Bytes += int64(m.ContentSize)
	switch {
	case m.Dead:
		e.DeadLettered++
	case m.State == queue.Deferred:
		e.Deferred++
	case m.State == queue.Scheduled:
		e.Scheduled++
	default:
		e.Active++
	}
}

func (e *Entity) add(o *Entity) {
	e.Active += o.Active
	e.Scheduled += o.Scheduled
	e.Deferred += o.Deferred
	e.DeadLettered += o.DeadLettered
	e.Bytes += o.Bytes
}

// Check reads every entity and every message of a directory that no process has. It changes no
// byte. With an error there may be contents, too: what could be read before it.
func Check(dir string) (c *Contents, err error) {
	s, err := store.OpenReadOnly(dir)
	if err != nil {
		return nil, Explain(dir, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c = &Contents{Directory: dir, Entities: []Entity{}}
	if c.Bytes, err = s.Bytes(); err == nil {
		err = c.read(s)
	}
	if err != nil {
		return c, Explain(dir, err)
	}
	return c, nil
}

func (c *Contents) read(s *store.Store) error {
	_, err := s.Entities(func(id uint32, description []byte) error {
		namespace, path, err := broker.EntityOf(description)
		if err != nil {
			return fmt.Errorf("%w: entity %d: %w", store.ErrDamaged, id, err)
		}
		e := Entity{Namespace: namespace, Path: path}
		_, err = s.Load(id, func(m *queue.Change) error {
			e.count(&m.Stored)
			return nil
		})
		err = cmp.Or(err, s.CheckContents(id))
		c.Total.add(&e)
		c.Entities = append(c.Entities, e)
		return err
	})
	slices.SortFunc(c.Entities, func(a, b Entity) int {
		return strings.Compare(a.Namespace+"\x00"+a.Path, b.Namespace+"\x00"+b.Path)
	})
	return err
}
