// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	// clusterPlaces is how many places companions have in a cluster, so that its servers share the
	// work. One server has the first of them alone, and that of notes.
	clusterPlaces = 8
	placeOfNotes  = "notes"

	askTime   = 2 * time.Second // bound of one question
	keepTime  = 5 * time.Second // bound of all tries to keep something
	keepPause = 50 * time.Millisecond
	// mostDead bounds what could not be done in each place, the oldest of which are forgotten.
	mostDead = 10_000
	dueGrain = time.Millisecond
)

// Companions are those of the fleet, where Redis keeps them in the place of the monitor queue. Here
// Redis is the truth.
//
//	Put ─▶ waits ─ Claim ─▶ leased ─┬─ Done ─▶
//	         ▲                      ├─ Bury ─▶ dead
//	         └── GiveBack, or lapse ┘
//
// Every request may be made twice, so a failed one is tried again.
type Companions struct {
	s       *Store
	token   string // of this process
	places  []*place
	channel string // where processes publish that something is due before all else
	woken   chan struct{}
	life    time.Duration // of a lease

	listening atomic.Bool
	failure   atomic.Pointer[error] // of the last question; nil = there was none
	outage    outage

	mu     sync.Mutex
	inHand map[string]*place // what is leased by this process, by id
}

// A place is some of the companions: what one script works on, and one server of a cluster has.
type place struct {
	name                                string
	due, leased, holders, records, dead string // keys, with one tag

	mu      sync.Mutex
	next    time.Time // by our clock: when there may be something to lease
	soon    int64     // when the next is due that is known of, in ms; 0 = none is
	brought int       // how often one was brought that is due before that
	err     error     // why nothing was learnt the last time
	lost    time.Time // by our clock: when that was last; zero = it was never, or is over
}

// Companions are those of the fleet. There is one value of it in a process.
func (s *Store) Companions() *Companions {
	c := &Companions{s: s, token: rand.Text(), channel: s.key("wake"), woken: make(chan struct{}, 1), life: leaseLife, inHand: map[string]*place{}}
	n := 1
	if s.cfg.Address.Cluster {
		n = clusterPlaces
	}
	for i := range n {
		c.places = append(c.places, s.place(strconv.Itoa(i)))
	}
	c.places = append(c.places, s.place(placeOfNotes))
	return c
}

func (s *Store) place(name string) *place {
	tag := "{" + s.fleet + "-" + name + "}"
	return &place{
		name: name, due: s.key("c", tag, "due"), leased: s.key("c", tag, "leased"), holders: s.key("c", tag, "holders"),
		records: s.key("c", tag, "records"), dead: s.key("c", tag, "dead"),
	}
}

// placeOf is where an item is kept.
func (c *Companions) placeOf(id string, note bool) *place {
	companions := c.places[:len(c.places)-1]
	if note {
		return c.places[len(c.places)-1]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return companions[h.Sum32()%uint32(len(companions))]
}

// do asks Redis once. There is no circuit: what is asked here nobody goes on without.
func (c *Companions) do(ctx context.Context, f question) error {
	asking, cancel := context.WithTimeout(ctx, c.s.bound(askTime))
	defer cancel()
	err := f(asking)
	if err != nil && over(ctx) {
		<-ctx.Done()
		return context.Cause(ctx) // the caller gave up, which says nothing
	}
	if err != nil {
		err = fmt.Errorf("redis: companions: %w", err)
	}
	c.failure.Store(&err)
	c.s.asked("companions", err, c.outage.note(err))
	return err
}

// Failure is why the last question was not answered, nil when it was.
func (c *Companions) Failure() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Put returns when Redis has all items, or with the error of the last try. Items that Redis has
// already stay as they are.
func (c *Companions) Put(ctx context.Context, items []Item) error {
	type part struct {
		args []any
		soon int64
	}
	parts := map[*place]*part{}
	for i := range items {
		it := &items[i]
		k := c.placeOf(it.ID, it.Note)
		p := parts[k]
		if p == nil {
			p = &part{}
			parts[k] = p
		}
		due := millis(it.Due)
		p.args = append(p.args, it.ID, due, record(it, due))
		if p.soon == 0 || due < p.soon {
			p.soon = due
		}
	}
	var all errgroup.Group
	for k, p := range parts {
		all.Go(func() error {
			err := c.insist(ctx, func(ctx context.Context) error { return keep(ctx, c.s.client, k, c.channel, p.args) })
			if err == nil && k.brings(p.soon) {
				c.wake()
			}
			return err
		})
	}
	return all.Wait()
}

// insist asks until it is answered, for keepTime at most.
func (c *Companions) insist(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.s.bound(keepTime))
	defer cancel()
	var last error
	for pause := keepPause; ; pause = min(2*pause, time.Second) {
		err := c.do(ctx, f)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if final(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return last
		}
	}
}

// final reports whether Redis has said something that it will say again: that its memory is full,
// that we may not.
func final(err error) bool {
	if answer := (redis.Error)(nil); !errors.As(err, &answer) {
		return false
	}
	return !slices.ContainsFunc([]string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS"},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Withdraw forgets companions that still wait, and returns which it found.
func (c *Companions) Withdraw(ctx context.Context, ids []string) (withdrawn []string, err error) {
	parts := map[*place][]any{}
	for _, id := range ids {
		k := c.placeOf(id, false)
		parts[k] = append(parts[k], id)
	}
	for k, part := range parts {
		if err := c.do(ctx, func(ctx context.Context) error {
			gone, err := withdraw(ctx, c.s.client, k, part)
			withdrawn = append(withdrawn, gone...)
			return err
		}); err != nil {
			return withdrawn, err
		}
	}
	return withdrawn, nil
}

// millis is an instant as it is kept: never earlier than it is.
func millis(t time.Time) int64 { return t.Add(dueGrain - time.Nanosecond).UnixMilli() }

// record is an item as it is kept, but for its id.
func record(it *Item, due int64) string {
	b := make([]byte, 0, len(it.ContentType)+len(it.Subject)+len(it.Body)+24)
	b = append(append(b, it.ContentType...), 0)
	b = append(append(b, it.Subject...), 0)
	b = append(strconv.AppendInt(b, due, 10), 0)
	return string(append(b, it.Body...))
}

// itemOf reads a record. One that somebody else has written has no content type, and is nobody's.
func itemOf(k *place, id, text string) Item {
	it := Item{ID: id, Note: k.name == placeOfNotes}
	parts := bytes.SplitN([]byte(text), []byte{0}, 4)
	if len(parts) != 4 {
		return it
	}
	due, err := strconv.ParseInt(string(parts[2]), 10, 64)
	if err != nil {
		return it
	}
	it.ContentType, it.Subject, it.Due, it.Body = string(parts[0]), string(parts[1]), time.UnixMilli(due).UTC(), parts[3]
	return it
}

// An Item is what waits for its time: a companion or a note.
type Item struct {
	ID          string // what is kept under one is kept once
	Due         time.Time
	ContentType string
	Subject     string
	Body        []byte
	Note        bool // it is no companion, and one of few
}

// A Lease is an item in the hands of one worker. It comes back to another when it is not renewed.
type Lease struct{ Item }

// A Dead item is one that could not be done, and why.
type Dead struct {
	Item
	At                  time.Time
	Reason, Description string
}

// Counts are how many items a store has.
type Counts struct{ Waiting, Leased, Dead int64 }
