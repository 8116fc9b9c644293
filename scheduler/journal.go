// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"overdue/internal/servicebus/link"
)

const (
	defaultJournalSize = 64 << 20
	// patience is how long the monitor queue may take to accept a companion before it counts as
	// down. It is shorter than a send may take, so that the journal is still of use to it.
	patience = 5 * time.Second
)

// JournalConfig holds the settings of a Journal. Scheduler, Directory and Namespace are needed; the
// zero value of everything else is sensible.
type JournalConfig struct {
	Scheduler *Scheduler
	// Directory holds the journal's one file. It is made where it does not exist. One process has it
	// at a time.
	Directory string
	// Namespace says whose companions these are. Those of another one are kept and not touched.
	Namespace string
	// MaxSize bounds the companions that are kept, in bytes; the file takes about twice as much.
	// 0 = 64 MiB.
	MaxSize int64
	// MustExist makes OpenJournal fail with fs.ErrNotExist where there is no journal yet.
	MustExist bool

	// Told is told whenever something changes that an operator wants to know, once for each change,
	// with err where it is for the worse. It must not block. May be nil.
	Told func(event string, err error, s JournalStatus)
	// Kept is told of n companions that have gone to the journal. May be nil.
	Kept func(n int)
}

// What Told is told.
const (
	eventDown     = "monitor queue is down: companions go to the journal"
	eventBack     = "monitor queue is back: the journal is written to it"
	eventEmpty    = "journal is empty: its companions are on the monitor queue"
	eventRefusing = "journal takes no companions: sends with a deadline are refused"
	eventTaking   = "journal takes companions again"
	eventTooLarge = "companion is too large for the monitor queue: it stays in the journal"
	eventUnread   = "journal cannot be written to the monitor queue: its companions stay in it"
)

// A JournalStatus is what a journal holds, and how it fares.
type JournalStatus struct {
	Companions int   // that wait for the monitor queue
	Bytes      int64 // of all companions in the file
	Elsewhere  int   // companions of other namespaces, which this process leaves alone
	Down       error // why the monitor queue is taken to be down; nil when it is not
	Refusing   error // why the last companion was not kept; nil when it was
}

// A Journal keeps companions on disk while the monitor queue cannot be written, and writes them to it
// when it is back. It is safe for concurrent use.
//
//	Begin ─┬─ the queue takes it ──────────────────────────────▶ monitor queue
//	       └─ it does not, or is known to be down ─▶ file ─ Run ─▶
//
// A companion is on disk, synced, before its caller is told. It is taken out when the monitor queue has
// accepted it, so that after a crash it may be written twice; its message-id is the same each time.
type Journal struct {
	cfg   JournalConfig
	s     *Scheduler
	store *store
	phase atomic.Pointer[phase]
	work  chan struct{} // gets a value when there may be something to write to the queue

	mu       sync.Mutex
	pending  []*ticket // what waits for the commit in flight to end
	flying   bool      // a commit is in flight
	refusing error     // why the last commit failed
	closed   bool
	flights  sync.WaitGroup

	// Of Run alone:
	accepted []entry // on the monitor queue, and not yet taken out
	unread   error   // what is wrong with the file
	tooLarge bool    // that there is one has been told
}

// A phase lasts while the monitor queue is taken to be up, or to be down.
type phase struct {
	down error         // nil = up
	over chan struct{} // closed when the next phase has begun
}

// errJournalFull says that the journal holds as much as it may.
var errJournalFull = errors.New("it is full")

// errNoAnswer says that the monitor queue took too long.
var errNoAnswer = fmt.Errorf("scheduler: the monitor queue has not answered for %v", patience)

// OpenJournal opens the journal in cfg.Directory and makes it where there is none. It fails when another process
// has it, when the directory cannot be written, and when the file is damaged; the error is a
// sentence, and the file stays as it is.
func OpenJournal(cfg JournalConfig) (*Journal, error) {
	if cfg.Scheduler == nil || cfg.Directory == "" || cfg.Namespace == "" {
		return nil, errors.New("scheduler: a journal needs a scheduler, a directory and the name of its namespace")
	}
	if cfg.MaxSize == 0 {
		cfg.MaxSize = defaultJournalSize
	}
	st, err := openStore(cfg)
	if err != nil {
		return nil, err
	}
	j := &Journal{cfg: cfg, s: cfg.Scheduler, store: st, work: make(chan struct{}, 1)}
	j.phase.Store(&phase{over: make(chan struct{})})
	return j, nil
}

// Begin is Scheduler.Begin for who would rather have the companion on disk than not at all: wait returns nil
// when c is accepted by the monitor queue or safe in the journal. While the queue is known to be down
// it is not asked.
func (j *Journal) Begin(c Companion) (wait func(context.Context) error) {
	now := j.phase.Load()
	if now.down != nil && j.inUse() {
		return j.keep(ticketFor(c)).wait
	}
	patient := time.Now().Add(patience)
	t := j.s.enter(ticketFor(c))
	return func(ctx context.Context) error {
		err := j.asked(ctx, t, now, patient)
		switch {
		case err == nil:
			if now.down != nil {
				j.rose()
			}
			return nil
		case ctx.Err() != nil || !another(err):
			return err
		}
		j.fell(err)
		return j.keep(ticketFor(c)).wait(ctx)
	}
}

// asked waits for the monitor queue to take t, until it is known to be down or patience is over.
func (j *Journal) asked(ctx context.Context, t *ticket, now *phase, patient time.Time) error {
	timer := time.NewTimer(time.Until(patient))
	defer timer.Stop()
	falls := now.over
	if now.down != nil {
		falls = nil // it has fallen; there is nothing else to do than to ask
	}
	select {
	case <-t.done:
	case <-ctx.Done():
	case <-timer.C:
		if !t.over() {
			return errNoAnswer
		}
	case <-falls:
		if down := j.phase.Load().down; down != nil && !t.over() {
			return down
		}
	}
	return t.wait(ctx)
}

// another reports whether it is the monitor queue's fault that a companion was not written, and another time
// it may be.
func another(err error) bool {
	return !errors.Is(err, link.ErrTooLarge) && !errors.Is(err, ErrClosed) && !errors.Is(err, errEncode)
}

// inUse reports whether the journal holds something that Run asks the monitor queue with.
func (j *Journal) inUse() bool {
	if j.store.status().Companions > 0 {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flying && j.refusing == nil
}

// fell notes that the monitor queue is down.
func (j *Journal) fell(err error) {
	if j.turn(false, &phase{down: err, over: make(chan struct{})}) {
		j.tell(eventDown, err)
	}
}

// rose notes that the monitor queue has accepted a companion.
func (j *Journal) rose() {
	if j.turn(true, &phase{over: make(chan struct{})}) {
		j.tell(eventBack, nil)
	}
}

// turn begins a phase, unless such a one lasts already.
func (j *Journal) turn(down bool, next *phase) bool {
	for {
		now := j.phase.Load()
		if (now.down != nil) != down {
			return false
		}
		if j.phase.CompareAndSwap(now, next) {
			close(now.over)
			return true
		}
	}
}

// keep hands t to the next commit, unless it is done. It is done when it is on disk.
func (j *Journal) keep(t *ticket) *ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case t.over():
	case j.closed:
		t.err = fmt.Errorf("scheduler: journal companion for %s: %w", t.c.Entity, ErrClosed)
		close(t.done)
	default:
		j.pending = append(j.pending, t)
		j.takeOffLocked()
	}
	return t
}

// takeOffLocked commits what is pending, unless a commit is in flight: then it is committed together with
// whatever else comes until that one ends, and shares its sync.
func (j *Journal) takeOffLocked() {
	if len(j.pending) == 0 || j.flying {
		return
	}
	tickets := j.pending
	j.pending, j.flying = nil, true
	j.flights.Add(1)
	go j.commit(tickets)
}

// commit puts the companions of tickets on disk, then lets those take off that came meanwhile.
func (j *Journal) commit(tickets []*ticket) {
	defer j.flights.Done()
	groups := compose(tickets)
	kept := 0
	var refused error
	errs := j.store.put(groups)
	for _, err := range errs {
		switch {
		case err == nil:
			kept++
		case another(err):
			refused = err
		}
	}
	if kept > 0 && j.cfg.Kept != nil {
		j.cfg.Kept(kept)
	}
	j.noteRefusal(refused) // before anybody is told, who may ask for the status
	for i, g := range groups {
		g.settle(errs[i])
	}
	j.mu.Lock()
	j.flying = false
	j.takeOffLocked()
	j.mu.Unlock()
	select {
	case j.work <- struct{}{}:
	default: // Run will look anyway
	}
}

// noteRefusal notes why the journal did not take a companion; nil when it took all.
func (j *Journal) noteRefusal(err error) {
	j.mu.Lock()
	was := j.refusing
	j.refusing = err
	j.mu.Unlock()
	switch {
	case err != nil && was == nil:
		j.tell(eventRefusing, err)
	case err == nil && was != nil:
		j.tell(eventTaking, nil)
	}
}

func (j *Journal) tell(event string, err error) {
	if j.cfg.Told != nil {
		j.cfg.Told(event, err, j.Status())
	}
}

// Status is what the journal holds, and how it fares.
func (j *Journal) Status() JournalStatus {
	s := j.store.status()
	s.Down = j.phase.Load().down
	j.mu.Lock()
	defer j.mu.Unlock()
	s.Refusing = j.refusing
	return s
}

// Close refuses new companions, waits for those on their way to the disk and closes the file. Run has to have
// ended. What is in the file stays there for the next process.
func (j *Journal) Close(ctx context.Context) error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	if err := waitFor(ctx, &j.flights); err != nil {
		return fmt.Errorf("scheduler: companions still on their way to the journal: %w", err)
	}
	return j.store.close()
}
