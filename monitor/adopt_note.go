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
	"overdue/monitor/search"
	"overdue/scheduler"

	"go.uber.org/zap"
)

// adoptNoteType is the content type of the note that says how far an adopted entity has been read.
// There is one note for each entity. The worker that receives it runs the next adopt pass and
// writes the next note. So several workers read an entity once, and a restart continues where they
// were. On the wire, the content type names a pass differently.
const adoptNoteType = "application/vnd.overdue.sweep+json"

const (
	adoptNoteVersion = 1
	maxNoteSize      = 240 << 10 // bytes: less than a message of the least tier may have
	// noteLostAfter is the number of intervals without a note after which a worker looks for
	// one, and starts over if there is none.
	noteLostAfter = 10
	// noteRetry bounds how long a note that could not be rewritten stays locked.
	noteRetry = 5 * time.Second
	// noteTwin is for how many intervals a note is remembered, to notice a second one.
	noteTwin = 3
)

// adoptNote is the body of a note.
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

// adoption is what a worker knows of an adopted entity. The mutex of the worker guards it.
type adoption struct {
	Adoption
	series string
	turn   int64
	seen   time.Time // by our clock: when a note of it was last here
}

// noteID is the prefix of the message-ids of the notes of an entity.
func noteID(entity string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(entity)))
	return "overdue-sweep-" + hex.EncodeToString(sum[:8]) + "-"
}

// keepNote writes the next note.
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

// SetAdopted replaces the adopted entities. Those that stay continue where they are.
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

// runAdoptions writes missing notes until ctx ends.
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

// lostAdoptions returns the adopted entities whose note is missing, and when to check again.
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

// beginAdoption writes the first note of an entity, unless there is one.
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

// hasNote reports whether the entity has a note.
func (w *Worker) hasNote(ctx context.Context, a Adoption, now scheduler.Instant) (found bool, err error) {
	prefix := noteID(a.Entity)
	if w.cfg.Store != nil {
		return w.cfg.Store.HasNote(ctx, prefix)
	}
	v := search.View{Links: w.cfg.Links, Path: w.cfg.MonitorQueue, Operations: w.metrics.operations, Seen: &search.SeenIDs{}}
	defer v.Close(ctx)
	// The last note was written at most an interval ago; twice that for a worker that is slow.
	from := now.Time.Add(-now.Uncertainty - 2*max(a.Every, time.Minute))
	if !now.Measured {
		from = time.Time{}
	}
	err = v.Between(ctx, from, search.Forever, func(m *link.Message) { found = found || strings.HasPrefix(m.MessageID, prefix) })
	return found, err
}

// admitNote reports whether this worker adopts the entity of a note that is due, and whether
// the note is the one that continues.
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

// readmitNote accepts a note again that could not be rewritten.
func (w *Worker) readmitNote(n adoptNote) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.adoptions[strings.ToLower(n.Entity)]; ok {
		s.turn = n.Turn - 1
		w.adoptions[strings.ToLower(n.Entity)] = s
	}
}

// adoptPass runs the pass of a note that is due.
func (w *Worker) adoptPass(work context.Context, l lease) {
	w.running.Go(func() {
		defer w.letGo(l)
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
