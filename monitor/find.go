// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
)

// find searches the work queue for the messages of the watches. For messages that it meets in
// the dead-letter queue, it sets missed.
func (e *entity) find(ctx context.Context, watches []*watch) error {
	wants := make([]*search.Want, len(watches))
	for i, wt := range watches {
		wants[i] = e.wantOf(wt)
	}
	better := e.chooser(nil)
	if err := e.work.FindNumbered(ctx, wants, better); err != nil {
		return err
	}
	// An earlier check may have expired it: a message that was seen on the work queue and is gone
	// is probably a dead letter. Its sequence number saves a search.
	if err := e.readSeenDeadLetters(ctx, watches); err != nil {
		return err
	}
	wants = wants[:0]
	for _, wt := range watches {
		if wt.state != stateMissed {
			wants = append(wants, &wt.want)
		}
	}
	if err := e.work.FindNamed(ctx, wants, better); err != nil {
		return err
	}
	e.useSpares(wants)
	e.identify(wants...)
	return nil
}

// useSpares has wants without a result use their spare ones. A message that another watch has shows
// that its message-id repeats.
func (e *entity) useSpares(wants []*search.Want) {
	var taken map[search.Identity]bool
	for _, w := range wants {
		if w.Found != nil || w.Spare == nil {
			continue
		}
		if taken == nil {
			taken = e.taken()
			for _, o := range wants {
				if o.Found != nil {
					taken[search.IdentityOf(o.Found)] = true
				}
			}
		}
		w.Found = w.Spare
		_, watched := taken[search.IdentityOf(w.Found)]
		w.Duplicates = w.Duplicates || watched
		taken[search.IdentityOf(w.Found)] = true
	}
}

// wantOf prepares the search for the message of wt.
func (e *entity) wantOf(wt *watch) *search.Want {
	w := &wt.want
	w.Found, w.Spare = nil, nil
	if w.Number == 0 {
		w.Seek(&wt.ref)
		w.Hint = e.hint(w)
		w.Endless, w.Since = e.settings.known && e.settings.DefaultMessageTimeToLive == 0, e.settings.DefaultSince
	}
	return w
}

// identify remembers the identities of the messages that were found on the work queue. A
// scheduled message gets a new sequence number at its activation, so it has none yet.
func (e *entity) identify(wants ...*search.Want) {
	for _, w := range wants {
		if w.Found == nil || search.Pending(w.Found) {
			continue
		}
		if w.Number == 0 {
			w.CheckStamp(w.Found)
			w.Duplicates = w.Duplicates || !w.Agreed && judge.StatesOther(w.Ref, w.Found, e.settings.shortest)
		}
		w.Identity = search.IdentityOf(w.Found)
	}
}

// chooser returns the rule for messages whose message-id repeats: it takes a message whose session
// and deadline are those of the reference and that suits accepts, and gives each message to one
// watch of this entity.
func (e *entity) chooser(suits func(*link.Message) bool) search.Chooser {
	var taken map[search.Identity]bool // from the first message with a repeated id on
	return func(w *search.Want, m *link.Message) bool {
		if taken == nil {
			taken = e.taken()
		}
		n := search.IdentityOf(m)
		if taken[n] || m.SessionID != w.Ref.SessionID || !judge.Agrees(w.Ref, m, e.settings.Settings) || suits != nil && !suits(m) {
			return false
		}
		taken[n] = true
		return true
	}
}

// taken returns the identities of the messages that have a watch: false if that is only one over
// duplicates. Then their own references may take them.
func (e *entity) taken() map[search.Identity]bool {
	taken := map[search.Identity]bool{}
	for _, list := range [][]*watch{e.watches, e.waiting.watches, e.checking} {
		for _, wt := range list {
			taken[wt.want.Identity] = taken[wt.want.Identity] || wt.duplicates != isDuplicate
			if wt.state == stateMissed {
				taken[search.Identity{Number: wt.missed.SequenceNumber, Enqueued: wt.missed.EnqueuedTime.UnixMilli()}] = true
			}
		}
	}
	return taken
}
