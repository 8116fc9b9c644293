// SPDX-License-Identifier: Apache-2.0

package mute

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// freshness is how old the last look may be for an event that is to be notified.
	freshness = 10 * time.Second
	// lookTimeout is how long an event waits for a check. Then it is notified: one too many is better than
	// one too few.
	lookTimeout = 2 * time.Second
	// lookInterval is how often Run looks, for the metrics, and so that the next check is short.
	lookInterval = time.Minute
)

// Config configures a Record. Links, Queue and Scheduler are required.
type Config struct {
	Links      *link.Namespace
	Queue      string               // the first monitor queue
	Scheduler  *scheduler.Scheduler // tells the broker's clock, and writes
	Store      Store                // has the notes instead of the monitor queue; may be nil
	Operations *operations.Counter
	Log        *zap.Logger // nil: none
}

// A Store keeps notes if the monitor queue cannot schedule messages.
type Store interface {
	// Notes shows f the notes whose ids begin so.
	Notes(ctx context.Context, prefix string, f func(redisstore.Item)) error
}

// A Record has the mutes as far as it has read them. It is safe for concurrent use.
type Record struct {
	cfg  Config
	turn chan struct{} // holds a value while somebody looks, who has what follows
	view search.View
	read time.Time                // the latest stamp on the monitor queue; zero: nothing was read yet
	todo map[string]*link.Message // notes whose bodies have not been read, by message-id

	mu     sync.Mutex
	notes  map[string]time.Time // by id: when it is due
	stated map[string]statement // by entity in lower case
	tried  time.Time            // our clock, at the end of the last look
	err    error                // of that
}

// A statement is what was stated last of an entity.
type statement struct {
	Mute
	due time.Time // of the last note of the entity: what comes next must stay as long
}

var errNoLook = errors.New("mute: the notes have not been read yet")

// New makes a Record. It reads nothing yet.
func New(cfg Config) *Record {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Record{
		cfg:    cfg,
		turn:   make(chan struct{}, 1),
		view:   search.View{Links: cfg.Links, Path: cfg.Queue, Operations: cfg.Operations},
		todo:   map[string]*link.Message{},
		notes:  map[string]time.Time{},
		stated: map[string]statement{},
		err:    errNoLook,
	}
}

// Run looks now and then until ctx ends.
func (r *Record) Run(ctx context.Context) error {
	defer r.Close(context.WithoutCancel(ctx))
	for {
		looking, cancel := context.WithTimeout(ctx, lookInterval)
		wait := lookInterval
		if r.Look(looking, freshness) != nil {
			wait = freshness
		}
		cancel()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// Close closes the links. A later look opens them again.
func (r *Record) Close(ctx context.Context) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.view.Close(ctx)
}

// Muted reports whether events about an entity stay from the sinks. If nobody has looked lately, it
// looks, and takes lookTimeout at most. Nothing is muted if that fails: one event too many is better
// than one too few.
func (r *Record) Muted(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return r.Look(ctx, freshness) == nil && r.Has(path)
}

// Has reports whether an entity is muted, by the last look.
func (r *Record) Has(path string) bool {
	return slices.ContainsFunc(r.InForce(), func(m Mute) bool { return m.Covers(path) })
}

// InForce returns the mutes, by the last look: none if it failed. The next to end comes first.
func (r *Record) InForce() (all []Mute) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil
	}
	now := r.cfg.Scheduler.Now().Time
	for _, s := range r.stated {
		if s.Until.After(now) {
			all = append(all, s.Mute)
		}
	}
	slices.SortFunc(all, func(a, b Mute) int { return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Entity, b.Entity)) })
	return all
}

// Look reads the notes that have come since the last look, unless that is younger than maxAge: then
// it returns its error.
func (r *Record) Look(ctx context.Context, maxAge time.Duration) error {
	if err, isFresh := r.last(maxAge); isFresh {
		return err
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return r.end(context.Cause(ctx)) // somebody looks for long
	}
	if err, isFresh := r.last(maxAge); isFresh { // meanwhile
		return err
	}
	return r.end(r.readNotes(ctx))
}

// last returns the error of the last look, and whether that is younger than maxAge.
func (r *Record) last(maxAge time.Duration) (err error, isFresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err, !r.tried.IsZero() && time.Since(r.tried) < maxAge
}

// end notes how a check ended, and forgets what is over.
func (r *Record) end(err error) error {
	if err != nil {
		err = fmt.Errorf("mute: read the mutes of %s: %w", r.cfg.Queue, err)
	}
	now := r.cfg.Scheduler.Now().Time
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.notes, func(_ string, due time.Time) bool { return due.Before(now) })
	maps.DeleteFunc(r.stated, func(_ string, s statement) bool { return s.due.Before(now) })
	if err != nil && r.err == nil && len(r.stated) > 0 {
		r.cfg.Log.Warn("mutes cannot be read: alerts of muted queues go out", zap.Error(err))
	}
	r.tried, r.err = time.Now(), err
	return err
}

// readNotes reads on. After an error the next call begins where this one got to.
func (r *Record) readNotes(ctx context.Context) error {
	if r.cfg.Store != nil {
		return r.cfg.Store.Notes(ctx, notePrefix, func(it redisstore.Item) { r.take(it.ID, it.Due, it.Body) })
	}
	from := r.read
	if !from.IsZero() {
		from = from.Add(-search.SettledAge) // until then something may come in between
	}
	err := r.view.Between(ctx, from, search.Forever, func(m *link.Message) {
		if m.EnqueuedTime.After(r.read) {
			r.read = m.EnqueuedTime
		}
		if strings.HasPrefix(m.MessageID, notePrefix) && m.State == link.Scheduled && !r.knows(m.MessageID) && len(r.todo) < maxNotes {
			r.todo[m.MessageID] = m
		}
	})
	for id, m := range r.todo {
		if err != nil {
			break
		}
		var body []byte
		if body, err = r.view.Body(ctx, m.SequenceNumber); err == nil {
			r.take(id, m.ScheduledEnqueueTime, body)
			delete(r.todo, id)
		}
	}
	return err
}

func (r *Record) knows(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.notes[id]
	return known
}

// take takes a note in. One that cannot be read mutes nothing.
func (r *Record) take(id string, due time.Time, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.notes[id]; known || len(r.notes) == maxNotes {
		return
	}
	r.notes[id] = due
	m, err := parse(body)
	log := r.cfg.Log.With(zap.String("message_id", id))
	if err != nil {
		log.Warn("mute refused", zap.Error(err))
		return
	}
	key := strings.ToLower(m.Entity)
	s, isKnown := r.stated[key]
	if due.After(s.due) {
		s.due = due
	}
	if !isKnown || m.Since.After(s.Since) {
		s.Mute = m
	}
	r.stated[key] = s
	text := "alerts muted"
	if m.Until.Equal(m.Since) {
		text = "alerts not muted any more"
	}
	log.Info(text, zap.String("work_queue", m.Entity), zap.Time("until", m.Until), zap.String("by", m.By), zap.String("reason", m.Reason))
}

// Set mutes the entity of m for a span, in all processes. A span of 0 ends its mute. It returns the
// mute with its times.
func (r *Record) Set(ctx context.Context, m Mute, span time.Duration) (Mute, error) {
	if err := r.Look(ctx, 0); err != nil {
		return m, err
	}
	now := r.cfg.Scheduler.Now()
	if !now.Measured {
		return m, errors.New("mute: the clock of the broker is not known yet")
	}
	r.mu.Lock()
	former := r.stated[strings.ToLower(m.Entity)]
	full := len(r.notes) >= maxNotes
	r.mu.Unlock()
	switch {
	case full:
		return m, fmt.Errorf("mute: %d mutes were stated and are not over yet; that is the most", maxNotes)
	case span == 0 && !former.Until.After(now.Time):
		return m, ErrNotMuted
	}
	m.Since = now.Time
	if !m.Since.After(former.Since) { // the clock of the process that stated it was ahead
		m.Since = former.Since.Add(time.Millisecond)
	}
	m.Until = m.Since.Add(span)
	due := m.Until
	if former.due.After(due) {
		due = former.due // otherwise a process that starts after this one's end would find the former
	}
	body, err := m.marshal()
	if err != nil {
		return m, err
	}
	id := notePrefix + rand.Text()
	err = r.cfg.Scheduler.Keep(ctx, scheduler.Note{
		ID:          id,
		Due:         due,
		ContentType: NoteType,
		Subject:     "mute",
		Body:        body,
	})
	if err != nil {
		return m, fmt.Errorf("mute: %w", err)
	}
	r.take(id, due, body)
	return m, nil
}
