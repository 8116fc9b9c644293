// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Source is asked how an entity was made.
type Source interface {
	// Read returns what is known of a queue or topic. Its errors are ErrNotFound, ErrNoRight, and
	// others that another try may not meet. One of those may have a method RetryAfter() time.Duration,
	// when the source says how long it wants to be left alone.
	Read(ctx context.Context, name string) (Info, error)
}

// Config holds the settings of a Store. Source is needed.
type Config struct {
	Source Source

	// Version is a number that changes with every change of an entity, for a source in this process
	// that answers at once. The caller reads again when the number has changed. With nil, the source
	// takes its time, and its answers hold for a while.
	Version func() uint64

	// Heard is called after each read of an entity with what is held of it from now on, which is the
	// last answer where the source could not be reached. It must not call the Store. nil: nobody wants
	// to know.
	Heard func(name string, info Info, err error)

	FreshFor time.Duration // how long an answer is taken as it is; 0 = 1 minute
	KeepFor  time.Duration // how long it is taken while another is fetched; 0 = DefaultKeepFor
	MaxWait  time.Duration // the longest wait for an answer, retries included; 0 = 15 s
	NoRight  time.Duration // how long ErrNoRight is taken for an answer; 0 = 1 hour
	MaxNames int           // to remember; those that were not asked for longest go. 0 = 4096
}

// DefaultKeepFor is how long a former answer may be taken for the settings of an entity.
const DefaultKeepFor = 2 * time.Minute

const (
	readers      = 8                      // reads at once
	retryMin     = 250 * time.Millisecond // after a read that failed, doubling up to
	retryMax     = time.Minute
	retryHopeful = 500 * time.Millisecond // the same while callers wait, see MaxWait
	missingMax   = 2 * time.Second        // the longest that ErrNotFound is taken for an answer
)

// errClosed is what Lookup fails with after Close.
var errClosed = errors.New("entities: store is closed")

// A Store remembers what its source says. It is safe for concurrent use.
//
// The answer that it has for a name is fresh at first, and used as it is. It is stale after that,
// and used while it is fetched again in the background. In the end it is old, and callers wait for
// the next answer. Where the source cannot be reached the last answer stays good.
type Store struct {
	cfg    Config
	table  table
	places chan struct{} // one per read

	down atomic.Int64 // until when the source is taken to be down, in nanoseconds

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	reading sync.WaitGroup // MUST only grow under mu while ctx has not ended

	mu sync.Mutex // guards what follows and entry.done
	// While the source fails nobody asks it before quiet, whatever the name; and once it has failed
	// for as long as MaxWait nobody waits for it.
	quiet    time.Time
	failures int
	first    time.Time // when the first of them began
	since    time.Time // when quiet was last moved
	last     error
}

// New makes a Store.
func New(cfg Config) *Store {
	for _, d := range []struct {
		of *time.Duration
		is time.Duration
	}{{&cfg.FreshFor, time.Minute}, {&cfg.KeepFor, DefaultKeepFor}, {&cfg.MaxWait, 15 * time.Second}, {&cfg.NoRight, time.Hour}} {
		if *d.of == 0 {
			*d.of = d.is
		}
	}
	if cfg.MaxNames == 0 {
		cfg.MaxNames = 4096
	}
	s := &Store{cfg: cfg, table: table{most: cfg.MaxNames}, places: make(chan struct{}, readers)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends what is being read, and waits for it.
func (s *Store) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.reading.Wait()
}

// Names returns the names that it remembers.
func (s *Store) Names() []string { return s.table.all() }

// Cached is Lookup for callers that cannot wait. It fails with ErrUnknown where Lookup would wait.
// The proxy calls it for each delivery, so it allocates nothing and takes no lock.
func (s *Store) Cached(name string) (Info, error) {
	if s.cfg.Version != nil {
		return s.current(s.ctx, name)
	}
	e := s.table.find(name)
	if e == nil {
		return Info{}, ErrUnknown
	}
	now := time.Now()
	e.use(now)
	a := e.answer.Load()
	if !a.usable(now, s.isDown(now)) {
		return Info{}, ErrUnknown
	}
	if !now.Before(a.next) {
		s.refresh(e)
	}
	return a.info, a.err
}

// Lookup returns what is known of an entity. Where nothing is, or what is known is too old or was
// ErrNotFound, it waits for an answer until ctx ends or the source has had its time. Its errors:
// ErrNotFound, ErrNoRight, that of ctx, and an *UnreachableError.
func (s *Store) Lookup(ctx context.Context, name string) (Info, error) {
	return s.LookupSince(ctx, name, time.Time{})
}

// LookupSince is Lookup for callers that need the settings as of the instant since, or later.
// Where the source does not answer that is the last answer, however old.
func (s *Store) LookupSince(ctx context.Context, name string, since time.Time) (Info, error) {
	if s.cfg.Version != nil {
		return s.current(ctx, name)
	}
	e := s.table.add(name)
	for {
		now := time.Now()
		e.use(now)
		if now.Before(since) {
			since = now
		}
		down := s.isDown(now)
		if a := e.answer.Load(); a.usable(now, down) && (!a.at.Before(since) || a.failing && (down || now.Before(a.next))) {
			if !now.Before(a.next) {
				s.refresh(e)
			}
			return a.info, a.err
		}
		done, began := s.read(e, true)
		if done == nil {
			return Info{}, errClosed
		}
		select {
		case <-done:
		case <-ctx.Done():
			return Info{}, context.Cause(ctx)
		}
		// An answer that another caller was waiting for may have been requested too early.
		if a := e.answer.Load(); !began.Before(since) {
			return a.info, a.err
		}
	}
}

// current reads a source that answers at once, unless nothing has changed since it was last read.
func (s *Store) current(ctx context.Context, name string) (Info, error) {
	version := s.cfg.Version() // before the read: what changes meanwhile is seen the next time
	e := s.table.find(name)
	if e == nil {
		e = s.table.add(name)
	}
	e.use(time.Now())
	if a := e.answer.Load(); a != nil && a.version == version {
		return a.info, a.err
	}
	info, err := s.cfg.Source.Read(ctx, e.name)
	e.answer.Store(&answer{info: info, err: err, version: version})
	s.heardOf(e.name, info, err)
	return info, err
}

// refresh has e read again, unless that is under way.
func (s *Store) refresh(e *entry) {
	if !e.busy.Load() {
		s.read(e, false)
	}
}

// read has e read by a goroutine, one for each name, and returns what is closed at its end, and
// when it began; nil after Close. Somebody who waits has it tried again for as long as MaxWait.
func (s *Store) read(e *entry, waits bool) (done <-chan struct{}, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.done != nil {
		return e.done, e.began
	}
	if s.ctx.Err() != nil {
		return nil, time.Time{}
	}
	ended := make(chan struct{})
	e.done, e.began = ended, time.Now()
	e.busy.Store(true)
	s.reading.Go(func() {
		info, at, err := s.ask(e, waits)
		a := s.judge(e.answer.Load(), info, at, err)
		s.heardOf(e.name, a.info, a.err)
		s.mu.Lock()
		e.answer.Store(a)
		e.done = nil
		e.busy.Store(false)
		s.mu.Unlock()
		close(ended)
	})
	return e.done, e.began
}

func (s *Store) heardOf(name string, info Info, err error) {
	if s.cfg.Heard != nil {
		s.cfg.Heard(name, info, err)
	}
}

// ask asks the source about e: once, or for as long as somebody can be expected to wait. at is
// when it was asked, zero if it was not, because it is to be left alone.
func (s *Store) ask(e *entry, waits bool) (info Info, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.MaxWait)
	defer cancel()
	if a := e.answer.Load(); a != nil && errors.Is(a.err, ErrNotFound) {
		sleepUntil(ctx, a.next)
	}
	for {
		select {
		case s.places <- struct{}{}:
		case <-ctx.Done():
			return Info{}, at, context.Cause(ctx)
		}
		quiet, err := s.leftAlone()
		if now := time.Now(); !now.Before(quiet) {
			at = now
			info, err = s.cfg.Source.Read(ctx, e.name)
			s.heard(at, err)
			quiet, _ = s.leftAlone()
		}
		<-s.places
		waits = waits && s.hopeful()
		deadline, _ := ctx.Deadline()
		if err == nil || final(err) || !waits || quiet.After(deadline) {
			return info, at, err
		}
		sleepUntil(ctx, quiet)
		if ctx.Err() != nil {
			return Info{}, at, err
		}
	}
}

// final: the source has answered, and the answer is not an Info.
func final(err error) bool { return errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoRight) }

// leftAlone says until when the source is not to be asked, and why.
func (s *Store) leftAlone() (until time.Time, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quiet, s.last
}

// hopeful: an answer may come while somebody waits for it.
func (s *Store) hopeful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures == 0 || time.Since(s.first) < s.cfg.MaxWait
}

// isDown: the source was tried not long ago, and in vain.
func (s *Store) isDown(now time.Time) bool { return now.UnixNano() < s.down.Load() }

// heard takes down how a read went that began at the given time. Reads that failed side by side are
// one failure: how many there were says nothing of how long it will last.
func (s *Store) heard(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || final(err) {
		s.failures, s.quiet, s.last = 0, time.Time{}, nil
		s.down.Store(0)
		return
	}
	if s.failures > 0 && began.Before(s.since) {
		return
	}
	if s.failures == 0 {
		s.first = began
	}
	longest := retryMax
	if time.Since(s.first) < s.cfg.MaxWait {
		longest = retryHopeful // somebody may wait for it, who is as late as this
	}
	wait := jitter(min(retryMin<<min(s.failures, 10), longest))
	var asked interface{ RetryAfter() time.Duration }
	if errors.As(err, &asked) {
		wait = max(wait, min(asked.RetryAfter(), retryMax))
	}
	s.failures++
	s.since = time.Now()
	s.down.Store(s.since.Add(s.cfg.KeepFor).UnixNano())
	s.quiet, s.last = s.since.Add(wait), err
}

// judge is what is held of an entity after a read, and for how long.
func (s *Store) judge(before *answer, info Info, at time.Time, err error) *answer {
	now := time.Now()
	switch {
	case err == nil:
		return &answer{info: info, at: at, next: at.Add(jitter(s.cfg.FreshFor)), until: at.Add(s.cfg.KeepFor)}
	case errors.Is(err, ErrNotFound):
		pause := retryMin
		if before != nil && errors.Is(before.err, ErrNotFound) {
			pause = min(2*before.pause, missingMax)
		}
		return &answer{err: err, pause: pause, next: now.Add(pause)}
	}
	a := &answer{err: err, failing: true, pause: retryMin}
	if before != nil && before.err == nil {
		a.info, a.at, a.err = before.info, before.at, nil
	}
	if errors.Is(err, ErrNoRight) {
		a.next = now.Add(jitter(s.cfg.NoRight))
		a.until = a.next
		return a
	}
	if a.err != nil {
		unreachable := &UnreachableError{Since: now, Err: err}
		if before != nil {
			errors.As(before.err, &unreachable) // since it began
			unreachable = &UnreachableError{Since: unreachable.Since, Err: err}
		}
		a.err = unreachable
	}
	if before != nil {
		a.pause = max(before.pause, retryMin)
	}
	if !at.IsZero() {
		a.next = now.Add(jitter(a.pause))
		a.pause = min(2*a.pause, retryMax)
	}
	if quiet, _ := s.leftAlone(); quiet.After(a.next) {
		a.next = quiet
	}
	if a.until = a.next; a.err == nil {
		a.until = a.next.Add(s.cfg.KeepFor) // who goes on with what was known need not stop when the source is back
	}
	return a
}

// jitter is d, give or take a tenth, so that what began together does not go on together.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(max(d/5, 1))
}

// sleepUntil waits until t, or until ctx ends.
func sleepUntil(ctx context.Context, t time.Time) {
	wait := time.Until(t)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
