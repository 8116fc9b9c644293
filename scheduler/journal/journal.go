// SPDX-License-Identifier: Apache-2.0

// Package journal keeps companions on disk while the monitor queue cannot be written, and writes
// them to it when it is back.
package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"overdue/internal/lifecycle"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

const (
	// answerTimeout is how long the monitor queue may take to accept a companion before it counts as
	// down, and an earlier process to let go of the file. It is shorter than a send may take, so that
	// the journal is still of use to it. A transfer that has failed is tried again as often.
	answerTimeout = 5 * time.Second
	// drainBatch bounds the companions that leave together, a millisecond for each: in addition to the
	// current sends, a monitor queue that has just come back gets 1,000 a second.
	drainBatch = 100
)

// Config holds the settings of a Journal. Scheduler, Directory and Namespace are needed; the
// zero value of everything else is sensible.
type Config struct {
	Scheduler *scheduler.Scheduler
	// Directory holds the journal's one file. It is made where it does not exist. One process has it
	// at a time.
	Directory string
	// Namespace says whose companions these are. Those of another one are kept and not touched.
	Namespace string
	// MaxSize bounds the companions that are kept, in bytes; the file takes about twice as much.
	// 0 = no bound.
	MaxSize int64
	// MustExist makes Open fail with fs.ErrNotExist where there is no journal yet.
	MustExist bool

	// Changed is called whenever something changes that an operator wants to know, once for each
	// change, with err where it is for the worse. It must not block. May be nil.
	Changed func(event string, err error, s Status)
	// Kept is called with the number of companions that have gone to the journal. May be nil.
	Kept func(n int)
}

// The events of Changed.
const (
	eventDown     = "monitor queue is down: companions go to the journal"
	eventBack     = "monitor queue is back: the journal is written to it"
	eventEmpty    = "journal is empty: its companions are on the monitor queue"
	eventRefusing = "journal takes no companions: while the monitor queue is down, sends with a deadline are refused"
	eventTaking   = "journal takes companions again"
)

// A Status is what a journal holds, and how it fares.
type Status struct {
	Companions int   // that wait for the monitor queue
	Bytes      int64 // of all companions in the file
	Elsewhere  int   // companions of other namespaces, which this process leaves alone
	Down       error // why the monitor queue is taken to be down; nil when it is not
	Refusing   error // why companions are not kept; nil when they are, or when the queue takes them
}

// A Journal keeps companions on disk while the monitor queue cannot be written, and writes them to
// it when it is back. It is safe for concurrent use.
//
//	Begin ─┬─ the queue takes it ──────────────────────────────▶ monitor queue
//	       └─ it does not, or is known to be down ─▶ file ─ Run ─▶
//
// A companion is on disk, synced, before its caller hears of it. It is taken out when the monitor
// queue has accepted it, so that after a crash it may be written twice; its message-id is the same
// each time.
type Journal struct {
	cfg  Config
	file *file
	work chan struct{} // gets a value when there may be something to write to the queue

	commits  sync.Mutex // held by the commit in flight
	running  sync.WaitGroup
	mu       sync.Mutex
	down     error                // why the queue is taken to be down
	pending  []*request           // what waits for the commit in flight to end
	refusing error                // what is wrong with the file
	refused  *scheduler.Companion // what it was not taken for; nil: nothing yet
	closed   bool
}

// errFull says that the journal holds as much as it may.
var errFull = errors.New("it is full")

// errNoAnswer says that the monitor queue took too long.
var errNoAnswer = fmt.Errorf("journal: the monitor queue has not answered for %v", answerTimeout)

// Open opens the journal in cfg.Directory and makes it where there is none. It fails when another
// process has it, when the directory cannot be written, and when the file is damaged. The error is
// a sentence, and the file stays as it is. Where the disk has no room for the file, the journal
// takes nothing until there is some, which Run finds out.
func Open(cfg Config) (*Journal, error) {
	if cfg.Scheduler == nil || cfg.Directory == "" || cfg.Namespace == "" {
		return nil, errors.New("journal: it needs a scheduler, a directory and the name of its namespace")
	}
	if cfg.MaxSize == 0 {
		cfg.MaxSize = math.MaxInt64
	}
	f, err := openFile(cfg)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		cfg:  cfg,
		file: f,
		work: make(chan struct{}, 1),
	}
	if _, noRoom := f.status(); noRoom != nil {
		j.setRefusing(noRoom, nil)
	}
	return j, nil
}

// Begin passes c on without blocking. wait returns nil when c is accepted by the monitor queue or
// safe in the journal. While the queue is known to be down it is not asked, unless the journal
// refuses: Run asks it with what is in the journal.
func (j *Journal) Begin(c scheduler.Companion) (wait func(context.Context) error) {
	j.mu.Lock()
	down, refusing := j.down, j.refusing
	j.mu.Unlock()
	if down != nil && refusing == nil {
		return j.keep(c).wait
	}
	until := time.Now().Add(answerTimeout)
	scheduled := j.cfg.Scheduler.Begin(c)
	return func(ctx context.Context) error {
		answering, cancel := context.WithDeadlineCause(ctx, until, errNoAnswer)
		defer cancel()
		err := scheduled(answering)
		switch {
		case err == nil && down != nil:
			j.setDown(nil)
			return nil
		case err == nil || ctx.Err() != nil || !isTransient(err):
			return err
		}
		j.setDown(err)
		return j.keep(c).wait(ctx)
	}
}

// isTransient reports whether it is the monitor queue's fault that a companion was not written, and
// another time it may be.
func isTransient(err error) bool {
	return !errors.Is(err, link.ErrTooLarge) && !errors.Is(err, scheduler.ErrClosed) && !errors.Is(err, scheduler.ErrEncode)
}

// setDown notes that the monitor queue is down, or with nil that it has accepted a companion.
func (j *Journal) setDown(err error) {
	j.mu.Lock()
	was := j.down
	j.down = err
	j.mu.Unlock()
	j.reportChange(was, err, eventDown, eventBack)
}

// setRefusing notes what is wrong with the file, or with nil that a write has succeeded, and for
// which companion that was found out.
func (j *Journal) setRefusing(err error, refused *scheduler.Companion) {
	j.mu.Lock()
	was := j.refusing
	j.refusing, j.refused = err, refused
	j.mu.Unlock()
	j.reportChange(was, err, eventRefusing, eventTaking)
}

// reportChange reports that something begins to be wrong, or has ended.
func (j *Journal) reportChange(was, err error, begins, ends string) {
	switch {
	case err != nil && was == nil:
		j.report(begins, err)
	case err == nil && was != nil:
		j.report(ends, nil)
	}
}

func (j *Journal) report(event string, err error) {
	if j.cfg.Changed != nil {
		j.cfg.Changed(event, err, j.Status())
	}
}

// A request is one caller's companion on its way to the disk.
type request struct {
	asked      scheduler.Companion
	companions []scheduler.Companion // to write
	done       chan struct{}         // closed when err is final
	err        error
}

func (r *request) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("journal: keep companion for %s: %w", r.asked.Entity, context.Cause(ctx))
	}
}

// keep adds a companion to the next commit, which begins when the one in flight ends: what comes
// until then shares its sync.
func (j *Journal) keep(c scheduler.Companion) *request {
	r := &request{
		asked:      c,
		companions: scheduler.Compose(c),
		done:       make(chan struct{}),
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		r.err = fmt.Errorf("journal: keep companion for %s: %w", c.Entity, scheduler.ErrClosed)
		close(r.done)
		return r
	}
	if j.pending = append(j.pending, r); len(j.pending) == 1 {
		j.running.Go(j.commit)
	}
	return r
}

// commit puts what is pending on disk.
func (j *Journal) commit() {
	j.commits.Lock()
	defer j.commits.Unlock()
	j.mu.Lock()
	requests := j.pending
	j.pending = nil
	j.mu.Unlock()
	if kept := j.file.put(requests); kept > 0 && j.cfg.Kept != nil {
		j.cfg.Kept(kept)
	}
	var refusal error
	var refused *scheduler.Companion
	for _, r := range requests {
		if r.err != nil && isTransient(r.err) {
			refusal, refused = r.err, &r.asked
		}
	}
	j.setRefusing(refusal, refused) // before any request ends, whose caller may ask for the status
	for _, r := range requests {
		close(r.done)
	}
	select {
	case j.work <- struct{}{}:
	default: // Run will check anyway
	}
}

// Status is what the journal holds, and how it fares.
func (j *Journal) Status() Status {
	s, noRoom := j.file.status()
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.Down = j.down; s.Down != nil || noRoom != nil { // otherwise nothing has to be kept
		s.Refusing = j.refusing
	}
	return s
}

// Run writes what is in the journal to the monitor queue, what is due first first, until ctx ends;
// then it returns nil. While the queue is down it asks with one companion after pauses of up to
// answerTimeout.
func (j *Journal) Run(ctx context.Context) error {
	for failed := false; ; {
		size := drainBatch
		if failed || j.Status().Down != nil {
			size = 1
		}
		n, err := j.drain(ctx, size)
		refusing := j.Status().Refusing != nil
		failed = err != nil
		var rest <-chan time.Time
		work := j.work
		switch {
		case failed || refusing:
			rest, work = time.After(answerTimeout/2+rand.N(answerTimeout/2)), nil
		case n > 0:
			rest, work = time.After(time.Duration(n)*time.Millisecond), nil
		}
		select {
		case <-rest:
		case <-work:
		case <-ctx.Done():
			return nil
		}
		if refusing {
			j.retry(ctx)
		}
	}
}

// retry finds out whether companions are still refused. It opens the file where there was no room
// for it. Otherwise it asks again with the companion that was refused last, of the queue and then
// of the file. Nobody else may ask: a process that refuses is not ready. That companion costs a
// needless check.
func (j *Journal) retry(ctx context.Context) {
	j.mu.Lock()
	refused, down := j.refused, j.down
	j.mu.Unlock()
	if _, noRoom := j.file.status(); noRoom != nil {
		j.setRefusing(j.file.open(), refused)
	}
	if refused != nil && down != nil {
		_ = j.Begin(*refused)(ctx) // which notes what becomes of it
	}
}

// drain writes what is due first, n companions of at most size, and takes out what is accepted. What
// cannot be taken out is written again: that costs needless checks.
func (j *Journal) drain(ctx context.Context, size int) (n int, err error) {
	entries, err := j.file.first(size)
	if err != nil {
		j.setRefusing(err, nil) // what is kept now might not be read either
		return 0, err
	}
	accepted, err := j.write(ctx, entries)
	if len(accepted) > 0 {
		j.setDown(nil)
		removeErr := j.file.remove(accepted)
		j.setRefusing(removeErr, nil)
		if j.Status().Companions == 0 {
			j.report(eventEmpty, nil)
		}
		if removeErr != nil {
			return len(entries), removeErr
		}
	}
	if err != nil && ctx.Err() == nil {
		j.setDown(err)
	}
	return len(entries), err
}

// write passes the entries to the scheduler, which writes them together with other companions, and
// waits for what becomes of them.
func (j *Journal) write(ctx context.Context, entries []entry) (accepted []entry, err error) {
	waits := make([]func(context.Context) error, len(entries))
	for i, e := range entries {
		waits[i] = j.cfg.Scheduler.Begin(e.c)
	}
	for i, wait := range waits {
		if waitErr := j.finish(ctx, entries[i].c, wait); waitErr != nil {
			err = waitErr
			continue
		}
		accepted = append(accepted, entries[i])
	}
	return accepted, err
}

// finish waits for what becomes of c. A monitor queue may be a smaller one by now: what is too
// large for it is written in two parts.
func (j *Journal) finish(ctx context.Context, c scheduler.Companion, wait func(context.Context) error) error {
	err := wait(ctx)
	if n := len(c.References); errors.Is(err, link.ErrTooLarge) && n > 1 {
		err = nil
		for part := range slices.Chunk(c.References, (n+1)/2) {
			c.References = part
			err = errors.Join(err, j.finish(ctx, c, j.cfg.Scheduler.Begin(c)))
		}
	}
	return err
}

// Close refuses new companions, waits for those on their way to the disk and closes the file. Run
// has to have ended. Companions in the file stay there for the next process.
func (j *Journal) Close(ctx context.Context) error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	if err := lifecycle.Wait(ctx, &j.running); err != nil {
		return fmt.Errorf("journal: companions still on their way to the disk: %w", err)
	}
	return j.file.close()
}
