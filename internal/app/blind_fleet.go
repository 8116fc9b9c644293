// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"overdue/alert"
)

const (
	// gatherTime is how long a monitor waits for the counts of the others in the same blind time,
	// and turnTime how long it waits for its turn then.
	gatherTime = 20 * time.Second
	turnTime   = 40 * time.Second
	// blindGroup is the group of the pool.
	blindGroup = "\x00blind"
	// maxNotedParts is how many parts a note names: more than there are monitors.
	maxNotedParts = 200
)

// errNotYet says that the other monitors are waited for.
var errNotYet = errors.New("waiting for the counts of other monitors in the same blind time")

// A blindFleet has the monitors that share a Redis report a blind time once, with the sums of all.
type blindFleet struct {
	pool alert.Pool

	part  string    // of this monitor; "" = none is added
	added time.Time // when it was
	to    time.Time // the end of the blind time that it is about
	next  blindNote // what end leaves behind
}

// A blindNote is what the monitors have reported.
type blindNote struct {
	Until time.Time // the end of the latest blind time
	Parts []string  // of the latest
}

// join adds e to the reports of the other monitors. Once it is the turn of this one, it returns the
// sum. isOurs is false if another monitor has reported it. Without Redis each monitor speaks for
// itself.
func (f *blindFleet) join(ctx context.Context, e alert.Event) (all alert.Event, isOurs bool, err error) {
	now := time.Now()
	if f.part == "" || e.Blind.To.Sub(f.to).Abs() > time.Second { // the broker's clock is known to be a little different each time
		body, err := json.Marshal(e)
		if err != nil {
			return e, true, err
		}
		part := rand.Text()
		if f.pool.Add(ctx, blindGroup, part, body) != nil {
			return e, true, nil
		}
		f.part, f.added, f.to = part, now, e.Blind.To
	}
	waited := now.Sub(f.added)
	if waited < gatherTime {
		return e, false, errNotYet
	}
	mine, parts, text, err := f.pool.Claim(ctx, blindGroup)
	switch {
	case err == nil && !mine && waited < gatherTime+turnTime:
		return e, false, errNotYet
	case err != nil || !mine:
		return e, true, nil
	}
	var note blindNote
	if json.Unmarshal([]byte(text), &note) != nil {
		note = blindNote{} // there is none yet
	}
	isKnown := note.Until.After(e.Blind.From) && !e.Blind.IsHarmful()
	f.next = note
	if slices.Contains(note.Parts, f.part) || isKnown {
		f.end(ctx)
		return e, false, nil
	}
	f.next.Parts = append(f.next.Parts, f.part)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		var other alert.Event
		isNew := !slices.Contains(f.next.Parts, name) && json.Unmarshal([]byte(parts[name]), &other) == nil
		if isNew && other.Blind != nil && other.Blind.From.Before(e.Blind.To) && e.Blind.From.Before(other.Blind.To) {
			f.next.Parts = append(f.next.Parts, name)
			e = alert.MergeBlind(e, other)
		}
	}
	f.next.Until = e.Blind.To
	return e, true, nil
}

// end ends the turn. The next blind time is another one.
func (f *blindFleet) end(ctx context.Context) {
	f.part = ""
	f.next.Parts = f.next.Parts[max(0, len(f.next.Parts)-maxNotedParts):]
	if text, err := json.Marshal(f.next); err == nil {
		// Otherwise the turn ends by itself, and another monitor may report the same.
		_ = f.pool.Release(ctx, blindGroup, string(text))
	}
}
