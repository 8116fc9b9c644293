// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// sweepType is the content type of the note that says how far an entity has been looked through. There is one of it for each
// entity that is adopted. Whichever worker receives it makes the next sweep and writes the next note, so that any number of
// workers look through an entity once, and go on after a restart where they were.
const sweepType = "application/vnd.overdue.sweep+json"

const (
	sweepVersion = 1
	maxSweepNote = 240 << 10 // bytes: less than a message of the least tier may have
	// sweepLost is after how many intervals without a note a worker looks whether there is one, and begins anew where there is
	// not. Others may have had it meanwhile.
	sweepLost = 10
	// sweepRetry bounds how long a note rests that could not be written anew, under its lock.
	sweepRetry = 5 * time.Second
	// sweepTwin is for how many intervals the note of an entity is remembered, to notice that there are two.
	sweepTwin = 3
)

// sweepNote is the body of such a note.
type sweepNote struct {
	Version int              `json:"version"`
	Entity  string           `json:"entity"`
	Line    string           `json:"line"` // of notes, from one to the next; of two lines the greater one ends
	Turn    int64            `json:"turn"` // of the line; of two notes with one turn the later one ends
	Places  map[string]place `json:"places"`
}

func parseSweepNote(body []byte) (n sweepNote, err error) {
	if len(body) > maxSweepNote {
		return n, fmt.Errorf("monitor: note of a sweep of %d bytes, at most %d are read", len(body), maxSweepNote)
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("monitor: note of a sweep is not the JSON of %s: %w", sweepType, err)
	}
	switch {
	case n.Version != sweepVersion:
		return n, fmt.Errorf("monitor: note of a sweep has version %d, this program reads version %d", n.Version, sweepVersion)
	case n.Turn < 0 || n.Entity == "" || n.Line == "" || len(n.Line) > 64 || len(n.Places) > maxSwept:
		return n, errors.New("monitor: note of a sweep does not say of what, or of too much")
	}
	return n, nil
}

// sweeping is what a worker knows of the sweeps of one entity. It is guarded by the worker's mutex.
type sweeping struct {
	Adoption
	line string
	turn int64
	seen time.Time // by our clock: when a note of it was last here
}

// noteID begins the message-ids of the notes of an entity, by which they are found on the monitor queue.
func noteID(entity string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(entity)))
	return "overdue-sweep-" + hex.EncodeToString(sum[:8]) + "-"
}

// keepNote writes the note of the next sweep.
func (w *Worker) keepNote(ctx context.Context, n sweepNote, due time.Time) error {
	n.Version = sweepVersion
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("monitor: encode the note of a sweep: %w", err)
	}
	return w.cfg.Scheduler.Keep(ctx, scheduler.Note{
		ID: noteID(n.Entity) + n.Line[:min(len(n.Line), 16)] + "-" + strconv.FormatInt(due.UnixMilli(), 10), Due: due, ContentType: sweepType, Subject: "sweep", Body: body,
	})
}

// SetAdopted changes what is adopted. What stays goes on where it is.
func (w *Worker) SetAdopted(all []Adoption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := map[string]sweeping{}
	for _, a := range all {
		key := strings.ToLower(a.Entity)
		s := w.sweeps[key]
		s.Adoption = Adoption{a.Entity, max(a.Every, time.Second)}
		next[key] = s
	}
	w.sweeps = next
	select {
	case w.sweepsChanged <- struct{}{}:
	default:
	}
}

// runSweeps sees to it until ctx ends that each adopted entity has a note.
func (w *Worker) runSweeps(ctx context.Context) {
	// Workers that start together do not look together.
	wait := time.Second + mathrand.N(2*time.Second)
	var changed <-chan struct{} // after that
	for {
		select {
		case <-time.After(wait):
		case <-changed:
		case <-ctx.Done():
			return
		}
		changed = w.sweepsChanged
		var lost []Adoption
		lost, wait = w.lostSweeps(time.Now())
		for _, a := range lost {
			if err := w.beginSweeps(ctx, a); err != nil && ctx.Err() == nil {
				w.log.Warn("adoption not begun", zap.String("work_queue", a.Entity), zap.Duration("retry_in", wait), zap.Error(err))
			}
		}
	}
}

// lostSweeps are the adopted entities of which no note was here for long, and when to look again.
func (w *Worker) lostSweeps(now time.Time) (lost []Adoption, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = time.Hour
	for _, s := range w.sweeps {
		wait = min(wait, s.Every)
		if s.seen.IsZero() || now.Sub(s.seen) >= sweepLost*s.Every {
			lost = append(lost, s.Adoption)
		}
	}
	return lost, wait
}

// beginSweeps writes the first note of an entity, unless there is one on the monitor queue.
func (w *Worker) beginSweeps(ctx context.Context, a Adoption) error {
	now := w.cfg.Scheduler.Now()
	found, err := w.hasNote(ctx, a, now)
	if err != nil {
		return err
	}
	if !found {
		if err := w.keepNote(ctx, sweepNote{Entity: a.Entity, Line: rand.Text(), Places: map[string]place{}}, now.Time); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.sweeps[strings.ToLower(a.Entity)]; ok {
		s.seen = time.Now()
		w.sweeps[strings.ToLower(a.Entity)] = s
	}
	return nil
}

// hasNote looks whether the next sweep of an entity has a note.
func (w *Worker) hasNote(ctx context.Context, a Adoption, now scheduler.Instant) (found bool, err error) {
	prefix := noteID(a.Entity)
	if w.cfg.Store != nil {
		return w.cfg.Store.HasNote(ctx, prefix)
	}
	v := view{links: w.cfg.Links, path: w.cfg.MonitorQueue, metrics: w.metrics, memory: &memory{}}
	defer v.close(ctx)
	// The last note was written at most an interval ago; twice that for a worker that is slow.
	from := now.Time.Add(-now.Uncertainty - 2*max(a.Every, time.Minute))
	if !now.Measured {
		from = time.Time{}
	}
	err = v.between(ctx, from, farAhead, func(m *link.Message) { found = found || strings.HasPrefix(m.MessageID, prefix) })
	return found, err
}

// admit decides about a note that has become due: whether this worker adopts its entity, and whether it is that of the line
// which goes on.
func (w *Worker) admit(n sweepNote, now time.Time) (a Adoption, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := strings.ToLower(n.Entity)
	s, ok := w.sweeps[key]
	if !ok {
		return a, false
	}
	if twin := s.line < n.Line || s.line == n.Line && s.turn >= n.Turn; s.line != "" && twin && now.Sub(s.seen) < sweepTwin*s.Every {
		return s.Adoption, false
	}
	s.line, s.turn, s.seen = n.Line, n.Turn, now
	w.sweeps[key] = s
	return s.Adoption, true
}

// readmit lets a note that could not be written anew come again.
func (w *Worker) readmit(n sweepNote) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.sweeps[strings.ToLower(n.Entity)]; ok {
		s.turn = n.Turn - 1
		w.sweeps[strings.ToLower(n.Entity)] = s
	}
}

// sweep makes the sweep of a note that has become due.
func (w *Worker) sweep(work context.Context, l lease) {
	w.running.Go(func() {
		defer func() { <-w.room }()
		n, err := parseSweepNote(l.body())
		if err != nil {
			w.log.Warn("note of a sweep refused", zap.String("message_id", l.id()), zap.Error(err))
			w.settled("dead-lettered", l.deadLetter(work, reasonMalformed, err.Error()))
			return
		}
		if w.isStopping() {
			w.settled("handed back", l.handBack(work))
			return
		}
		a, ok := w.admit(n, time.Now())
		if !ok {
			w.log.Info("sweep ended: its entity is not adopted here, or looked through twice", zap.String("work_queue", n.Entity))
			w.settled("completed", l.complete(work))
			return
		}
		began := w.latest()
		if n.Places == nil {
			n.Places = map[string]place{}
		}
		s := sweep{w: w, entity: a.Entity, places: maps.Clone(n.Places)}
		err = s.run(work)
		if err != nil {
			w.log.Warn("sweep failed", zap.String("work_queue", a.Entity), zap.Duration("retry_in", a.Every), zap.Error(err))
		}
		due := began.Add(a.Every)
		if s.more && err == nil {
			due = w.latest().Add(min(sweepRest, a.Every))
		}
		next := sweepNote{Entity: n.Entity, Line: n.Line, Turn: n.Turn + 1, Places: s.places}
		if err := w.keepNote(work, next, due); err != nil {
			w.log.Warn("note of a sweep not written anew, it will come back", zap.String("work_queue", n.Entity), zap.Error(err))
			select {
			case <-time.After(min(a.Every, sweepRetry)):
			case <-work.Done():
			}
			w.readmit(n)
			w.settled("handed back", l.handBack(work))
			return
		}
		w.settled("completed", l.complete(work))
	})
}

func (w *Worker) settled(what string, err error) {
	if err != nil {
		w.log.Warn("note of a sweep not "+what+", it will come back", zap.Error(err))
	}
}

func (w *Worker) isStopping() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}
