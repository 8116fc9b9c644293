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

// adoptNoteType is the content type of the note that says how far an entity has been looked through. There is one of it for each
// entity that is adopted. Whichever worker receives it makes the next adopt pass and writes the next note, so that any number of
// workers look through an entity once, and go on after a restart where they were.
const adoptNoteType = "application/vnd.overdue.sweep+json"

const (
	adoptNoteVersion = 1
	maxNoteSize      = 240 << 10 // bytes: less than a message of the least tier may have
	// noteLostAfter is after how many intervals without a note a worker looks whether there is one, and begins anew where there is
	// not. Others may have had it meanwhile.
	noteLostAfter = 10
	// noteRetry bounds how long a note rests that could not be rewritten, under its lock.
	noteRetry = 5 * time.Second
	// noteTwin is for how many intervals the note of an entity is remembered, to notice that there are two.
	noteTwin = 3
)

// adoptNote is the body of such a note.
type adoptNote struct {
	Version   int                 `json:"version"`
	Entity    string              `json:"entity"`
	Series    string              `json:"line"` // of notes, from one to the next; of two lines the greater one ends
	Turn      int64               `json:"turn"` // of the line; of two notes with one turn the later one ends
	Positions map[string]position `json:"places"`
}

func parseAdoptNote(body []byte) (n adoptNote, err error) {
	if len(body) > maxNoteSize {
		return n, fmt.Errorf("monitor: adopt note has %d bytes, the limit is %d", len(body), maxNoteSize)
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("monitor: adopt note is not the JSON of %s: %w", adoptNoteType, err)
	}
	switch {
	case n.Version != adoptNoteVersion:
		return n, fmt.Errorf("monitor: adopt note has version %d, this program reads version %d", n.Version, adoptNoteVersion)
	case n.Turn < 0 || n.Entity == "" || n.Series == "" || len(n.Series) > 64 || len(n.Positions) > maxAdoptedPaths:
		return n, errors.New("monitor: adopt note has no entity or series, or a field beyond its limit")
	}
	return n, nil
}

// adoption is what a worker knows of the adopt passes of one entity. It is guarded by the worker's mutex.
type adoption struct {
	Adoption
	series string
	turn   int64
	seen   time.Time // by our clock: when a note of it was last here
}

// noteID begins the message-ids of the notes of an entity, by which they are found on the monitor queue.
func noteID(entity string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(entity)))
	return "overdue-sweep-" + hex.EncodeToString(sum[:8]) + "-"
}

// keepNote writes the note of the next adopt pass.
func (w *Worker) keepNote(ctx context.Context, n adoptNote, due time.Time) error {
	n.Version = adoptNoteVersion
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("monitor: encode adopt note: %w", err)
	}
	return w.cfg.Scheduler.Keep(ctx, scheduler.Note{
		ID: noteID(n.Entity) + n.Series[:min(len(n.Series), 16)] + "-" + strconv.FormatInt(due.UnixMilli(), 10), Due: due, ContentType: adoptNoteType, Subject: "sweep", Body: body,
	})
}

// SetAdopted changes what is adopted. What stays goes on where it is.
func (w *Worker) SetAdopted(all []Adoption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := map[string]adoption{}
	for _, a := range all {
		key := strings.ToLower(a.Entity)
		s := w.adoptions[key]
		s.Adoption = Adoption{a.Entity, max(a.Every, time.Second)}
		next[key] = s
	}
	w.adoptions = next
	select {
	case w.adoptionsChanged <- struct{}{}:
	default:
	}
}

// runAdoptions sees to it until ctx ends that each adopted entity has a note.
func (w *Worker) runAdoptions(ctx context.Context) {
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
		changed = w.adoptionsChanged
		var lost []Adoption
		lost, wait = w.lostAdoptions(time.Now())
		for _, a := range lost {
			if err := w.beginAdoption(ctx, a); err != nil && ctx.Err() == nil {
				w.log.Warn("adoption not started", zap.String("work_queue", a.Entity), zap.Duration("retry_in", wait), zap.Error(err))
			}
		}
	}
}

// lostAdoptions are the adopted entities of which no note was here for long, and when to check again.
func (w *Worker) lostAdoptions(now time.Time) (lost []Adoption, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = time.Hour
	for _, s := range w.adoptions {
		wait = min(wait, s.Every)
		if s.seen.IsZero() || now.Sub(s.seen) >= noteLostAfter*s.Every {
			lost = append(lost, s.Adoption)
		}
	}
	return lost, wait
}

// beginAdoption writes the first note of an entity, unless there is one on the monitor queue.
func (w *Worker) beginAdoption(ctx context.Context, a Adoption) error {
	now := w.cfg.Scheduler.Now()
	found, err := w.hasNote(ctx, a, now)
	if err != nil {
		return err
	}
	if !found {
		if err := w.keepNote(ctx, adoptNote{Entity: a.Entity, Series: rand.Text(), Positions: map[string]position{}}, now.Time); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.adoptions[strings.ToLower(a.Entity)]; ok {
		s.seen = time.Now()
		w.adoptions[strings.ToLower(a.Entity)] = s
	}
	return nil
}

// hasNote looks whether the next adopt pass of an entity has a note.
func (w *Worker) hasNote(ctx context.Context, a Adoption, now scheduler.Instant) (found bool, err error) {
	prefix := noteID(a.Entity)
	if w.cfg.Store != nil {
		return w.cfg.Store.HasNote(ctx, prefix)
	}
	v := view{links: w.cfg.Links, path: w.cfg.MonitorQueue, metrics: w.metrics, seen: &seenIDs{}}
	defer v.close(ctx)
	// The last note was written at most an interval ago; twice that for a worker that is slow.
	from := now.Time.Add(-now.Uncertainty - 2*max(a.Every, time.Minute))
	if !now.Measured {
		from = time.Time{}
	}
	err = v.between(ctx, from, forever, func(m *link.Message) { found = found || strings.HasPrefix(m.MessageID, prefix) })
	return found, err
}

// admitNote decides about a note that has become due: whether this worker adopts its entity, and whether it is that of the line
// which goes on.
func (w *Worker) admitNote(n adoptNote, now time.Time) (a Adoption, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := strings.ToLower(n.Entity)
	s, ok := w.adoptions[key]
	if !ok {
		return a, false
	}
	if twin := s.series < n.Series || s.series == n.Series && s.turn >= n.Turn; s.series != "" && twin && now.Sub(s.seen) < noteTwin*s.Every {
		return s.Adoption, false
	}
	s.series, s.turn, s.seen = n.Series, n.Turn, now
	w.adoptions[key] = s
	return s.Adoption, true
}

// readmitNote lets a note that could not be rewritten come again.
func (w *Worker) readmitNote(n adoptNote) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.adoptions[strings.ToLower(n.Entity)]; ok {
		s.turn = n.Turn - 1
		w.adoptions[strings.ToLower(n.Entity)] = s
	}
}

// adoptPass makes the adopt pass of a note that has become due.
func (w *Worker) adoptPass(work context.Context, l lease) {
	w.running.Go(func() {
		defer func() { <-w.room }()
		n, err := parseAdoptNote(l.body())
		if err != nil {
			w.log.Warn("adopt note refused", zap.String("message_id", l.id()), zap.Error(err))
			w.logUnsettled("dead-lettered", l.deadLetter(work, reasonMalformed, err.Error()))
			return
		}
		if w.isStopping() {
			w.logUnsettled("handed back", l.handBack(work))
			return
		}
		a, ok := w.admitNote(n, time.Now())
		if !ok {
			w.log.Info("adopt note dropped: this monitor does not adopt its entity, or another note does", zap.String("work_queue", n.Entity))
			w.logUnsettled("completed", l.complete(work))
			return
		}
		began := w.latest()
		if n.Positions == nil {
			n.Positions = map[string]position{}
		}
		s := adoptPass{w: w, entity: a.Entity, positions: maps.Clone(n.Positions)}
		err = s.run(work)
		if err != nil {
			w.log.Warn("adopt pass failed", zap.String("work_queue", a.Entity), zap.Duration("retry_in", a.Every), zap.Error(err))
		}
		due := began.Add(a.Every)
		if s.more && err == nil {
			due = w.latest().Add(min(adoptRest, a.Every))
		}
		next := adoptNote{Entity: n.Entity, Series: n.Series, Turn: n.Turn + 1, Positions: s.positions}
		if err := w.keepNote(work, next, due); err != nil {
			w.log.Warn("adopt note not rewritten, it will come back", zap.String("work_queue", n.Entity), zap.Error(err))
			select {
			case <-time.After(min(a.Every, noteRetry)):
			case <-work.Done():
			}
			w.readmitNote(n)
			w.logUnsettled("handed back", l.handBack(work))
			return
		}
		w.logUnsettled("completed", l.complete(work))
	})
}

func (w *Worker) logUnsettled(what string, err error) {
	if err != nil {
		w.log.Warn("adopt note not "+what+", it will come back", zap.Error(err))
	}
}

func (w *Worker) isStopping() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}
