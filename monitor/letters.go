// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
)

const (
	// A dead letter that was seen witnessAge ago is a witness: a consumer that empties the queue
	// as it fills would have taken it.
	witnessAge = 300 * time.Millisecond
	// lettersHold is how long it counts that letters stay, or that one was taken, while no letters
	// are read: a consumer may start, or stop, at any time.
	lettersHold = 30 * time.Second
)

// letters reads the dead letters of an entity, and knows whether they stay: whether one that was
// found once, the witness, is still there. Every read of letters by number reads the witness, too.
// All times are by our clock.
type letters struct {
	view    *search.View
	target  *search.View // where they are forwarded to; nil: nowhere so far
	witness search.Identity
	since   time.Time // when the witness was first seen
	stayed  time.Time // when it was last seen, witnessAge later at least
	taken   time.Time // when a witness was last found gone
}

// stay reports whether dead letters are known to stay.
func (l *letters) stay() bool {
	return time.Since(l.stayed) < lettersHold && !l.areTaken()
}

// areTaken reports whether somebody is known to take dead letters away.
func (l *letters) areTaken() bool { return time.Since(l.taken) < lettersHold }

// stayedSince reports whether none can have been taken since an instant: a witness from before is
// still there. A consumer that takes letters takes the oldest first, or all.
func (l *letters) stayedSince(t time.Time) bool {
	return !l.since.IsZero() && l.since.Before(t) && l.stayed.After(t)
}

// note makes a letter the witness, if there is none. It was found under the identity that its
// message had on the work queue.
func (l *letters) note(identity search.Identity) {
	if l.since.IsZero() {
		l.witness, l.since = identity, time.Now()
	}
}

// read reads letters. Where they may be taken away, it reads the first page, on which new ones
// stand. Then it reads those with identities that wanted still returns, as far as the page did not
// have them.
func (l *letters) read(ctx context.Context, wanted func() []search.Identity, see func(*link.Message)) (err error) {
	asks, found := !l.since.IsZero() && time.Since(l.since) >= witnessAge, false
	seeAny := func(m *link.Message) {
		found = found || search.IdentityOf(m) == l.witness
		see(m)
	}
	began, reached := time.Now(), int64(0)
	if !l.stay() {
		if reached, err = l.view.First(ctx, seeAny); err != nil {
			return err
		}
	}
	left := wanted()
	if asks && !found {
		left = append(left, l.witness)
	}
	left = slices.DeleteFunc(left, func(i search.Identity) bool { return i.Number <= reached })
	if err := l.view.Find(ctx, left, seeAny); err != nil {
		return err
	}
	switch {
	case asks && found:
		l.stayed = began
	case asks:
		l.taken, l.since = began, time.Time{}
	}
	return nil
}

// forget drops what is known of letters.
func (l *letters) forget() {
	l.view.Forget()
	l.since, l.stayed, l.taken = time.Time{}, time.Time{}, time.Time{}
}

func (l *letters) close(ctx context.Context) {
	l.view.Close(ctx)
	if l.target != nil {
		l.target.Close(ctx)
	}
}

// findLetters reads the dead letters of watches. Every letter of a page counts for the watch that
// it belongs to, whichever it was read for.
func (e *entity) findLetters(ctx context.Context, watches []*watch) error {
	if len(watches) == 0 || e.settings.forwardDead != "" {
		return nil
	}
	wanted := func() (identities []search.Identity) {
		for _, wt := range undecided(watches) {
			identities = append(identities, wt.identity)
		}
		return identities
	}
	return e.letters.read(ctx, wanted, e.seeLetter)
}

// seeLetter moves on the watch that a dead letter belongs to, if there is one. A letter with
// another reason than expiry was received before.
func (e *entity) seeLetter(m *link.Message) {
	wt := e.watches[search.IdentityOf(m)]
	switch {
	case wt == nil || wt.isDecided():
	case e.settings.isUnreceived(m):
		e.letters.note(wt.identity)
		wt.expire(e.missed(wt, m))
	default:
		wt.see(stateMet)
	}
}
