// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"net/http"
	"time"

	"overdue/internal/broker"
)

// A kind is one of the two kinds of entities that a namespace lists: queues, or topics. T is what
// the broker says of one.
type kind[T any] struct {
	noun   string // "Queue"
	fields []field[T]
	parts  func(*T) parts

	all    func(*broker.Namespace) []T
	find   func(*broker.Namespace, string) (T, error)
	create func(*broker.Namespace, T) (T, error)
	update func(*broker.Namespace, T) (T, error)
}

// parts are what is handled alike in a queue and in a topic.
type parts struct {
	name             *string
	created, updated time.Time
	maxSize          *int64
	maxMessageSize   *uint64
	partitioned      *bool
	detectsDuplicate *bool
	requiresSession  *bool // nil: it cannot
	forwards         [2]string
	stated           *map[string]string
	unapplied        *map[string]string
}

// entry is one of the kind as an answer shows it. instead is XML that takes the place of some
// elements.
func (k *kind[T]) entry(c *call, v T, instead map[string]string) entry {
	p := k.parts(&v)
	*p.maxMessageSize = cmp.Or(*p.maxMessageSize, c.ns.MaxMessageSize())
	return entry{
		title:    *p.name,
		created:  p.created,
		updated:  p.updated,
		authored: true,
		content: func(w writer) {
			writeFields(w, k.noun+"Description", c.version, k.fields, &v, instead, *p.unapplied)
		},
	}
}

// answerList answers with those of the kind that the client asks for.
func (k *kind[T]) answerList(c *call) error {
	if err := c.gate.allow(Read, ""); err != nil {
		return err
	}
	return list(c, k.noun+"s", k.all(c.ns.Namespace), func(v T) entry { return k.entry(c, v, nil) })
}

// put creates what d describes, or changes it.
func (k *kind[T]) put(c *call, d *node) error {
	if c.updates() {
		return k.change(c, d)
	}
	v := k.fresh(c)
	if err := k.read(c, d, &v); err != nil {
		return err
	}
	*k.parts(&v).name = c.target.Name
	if err := c.destinations(k.parts(&v).forwards); err != nil {
		return err
	}
	v, err := k.create(c.ns.Namespace, v)
	if err != nil {
		return err
	}
	return c.writeEntry(http.StatusCreated, k.entry(c, v, unused))
}

// fresh is one of which nothing has been said.
func (k *kind[T]) fresh(c *call) (v T) {
	p := k.parts(&v)
	*p.maxSize, *p.maxMessageSize = defaultSize, c.ns.defaultMessageSize()
	return v
}

func (k *kind[T]) change(c *call, d *node) error {
	v, err := k.find(c.ns.Namespace, c.target.Name)
	if err != nil {
		return err
	}
	before := v
	was, p := k.parts(&before), k.parts(&v)
	*p.maxMessageSize = cmp.Or(*p.maxMessageSize, c.ns.MaxMessageSize())
	fresh := k.fresh(c)
	forgetFields(d, k.fields, &v, &fresh)
	*p.stated = c.ns.statedByUpdate(d)
	if err := k.read(c, d, &v); err != nil {
		return err
	}
	switch {
	case p.requiresSession != nil && *p.requiresSession != *was.requiresSession:
		return d.cannotChange("RequiresSession")
	case *p.detectsDuplicate != *was.detectsDuplicate:
		return d.cannotChange("RequiresDuplicateDetection")
	case *p.partitioned != *was.partitioned:
		return badRequest("Partitioning cannot be changed for %s. ", k.noun)
	}
	if err := c.destinations(k.parts(&v).forwards); err != nil {
		return err
	}
	if v, err = k.update(c.ns.Namespace, v); err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, k.entry(c, v, echo(c, d, k.fields)))
}

// read sets what d says of v, and checks its sizes.
func (k *kind[T]) read(c *call, d *node, v *T) error {
	p := k.parts(v)
	maxSize, maxMessageSize := *p.maxSize, *p.maxMessageSize
	err := readFields(c, d, k.fields, v)
	if err != nil {
		return err
	}
	if *p.maxSize, err = c.ns.size(d, *p.partitioned, maxSize, *p.maxSize); err != nil {
		return err
	}
	if k.parts(v).forwards[0] != "" {
		delete(*p.stated, "AutoDeleteOnIdle") // it is forever then
	}
	*p.unapplied = d.unapplied
	return c.ns.messageSize(d, maxMessageSize, *p.maxMessageSize)
}
