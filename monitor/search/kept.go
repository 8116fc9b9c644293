// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"overdue/internal/servicebus/link"
)

const (
	// keptFor is how long a message is kept, and usedFor how long after Use. A check follows its nudge
	// within seconds.
	keptFor = 30 * time.Second
	usedFor = 2 * time.Second
	// maxKept bounds the kept messages. The oldest are dropped.
	maxKept = 1 << 17
)

// Kept are messages that were read from a queue a moment ago. A View that has them shows them as
// if nobody could have taken them since. The methods are safe for concurrent use.
type Kept struct {
	mu      sync.Mutex
	ordered []keptMessage // by sequence number, each message once
	added   []keptMessage // since then
}

type keptMessage struct {
	*link.Message
	until time.Time // by our clock: it is kept no longer
	shown bool      // by with
}

func byNumber(a, b keptMessage) int {
	return cmp.Or(cmp.Compare(a.SequenceNumber, b.SequenceNumber), a.EnqueuedTime.Compare(b.EnqueuedTime))
}

// Add keeps a page that was just read.
func (k *Kept) Add(page []*link.Message) {
	until := time.Now().Add(keptFor)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range page {
		k.added = append(k.added, keptMessage{Message: m, until: until})
	}
	if len(k.added) > maxKept/4 {
		k.orderLocked()
	}
}

// orderLocked drops what is too old or too much, and puts what was added in its place.
func (k *Kept) orderLocked() {
	for now := time.Now(); ; now = now.Add(keptFor / 16) {
		over := func(m keptMessage) bool { return m.until.Before(now) }
		k.ordered, k.added = slices.DeleteFunc(k.ordered, over), slices.DeleteFunc(k.added, over)
		if len(k.ordered)+len(k.added) <= maxKept {
			break
		}
	}
	if len(k.added) == 0 {
		return
	}
	slices.SortFunc(k.added, byNumber)
	all := make([]keptMessage, 0, len(k.ordered)+len(k.added))
	for i, j := 0, 0; i < len(k.ordered) || j < len(k.added); {
		var m keptMessage
		if j == len(k.added) || i < len(k.ordered) && byNumber(k.ordered[i], k.added[j]) <= 0 {
			m = k.ordered[i]
			i++
		} else {
			m = k.added[j]
			j++
		}
		if len(all) == 0 || byNumber(all[len(all)-1], m) != 0 {
			all = append(all, m)
		}
	}
	k.ordered, k.added = all, k.added[:0]
}

// Use says that the event of a kept message is on its way. The message is kept a little longer, for
// another companion that names it.
func (k *Kept) Use(at Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	until := time.Now().Add(usedFor)
	i, _ := slices.BinarySearchFunc(k.ordered, at.Number, func(m keptMessage, n int64) int { return cmp.Compare(m.SequenceNumber, n) })
	for ; i < len(k.ordered) && k.ordered[i].SequenceNumber == at.Number; i++ {
		if m := &k.ordered[i]; IdentityOf(m.Message) == at && until.Before(m.until) {
			m.until = until
		}
	}
}

// WithoutKept calls read while v shows only what is on the queue.
func (v *View) WithoutKept(read func() error) error {
	kept := v.Kept
	v.Kept = nil
	defer func() { v.Kept = kept }()
	return read()
}

// Clear drops all messages.
func (k *Kept) Clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ordered, k.added = nil, nil
}

// all returns the messages that are kept, by number.
func (k *Kept) all() []*link.Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orderLocked()
	var all []*link.Message
	for _, m := range k.ordered {
		all = append(all, m.Message)
	}
	return all
}

// Take gives the kept messages to those wants that name them by their identities, and returns the
// others. No peek is needed for what was read a moment ago.
func (k *Kept) Take(wants []*Want) (left []*Want) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orderLocked()
	for _, w := range wants {
		i, _ := slices.BinarySearchFunc(k.ordered, w.Number, func(m keptMessage, n int64) int { return cmp.Compare(m.SequenceNumber, n) })
		for ; w.Number != 0 && w.Found == nil && i < len(k.ordered) && k.ordered[i].SequenceNumber == w.Number; i++ {
			if m := k.ordered[i]; IdentityOf(m.Message) == w.Identity {
				w.Found = m.Message
			}
		}
		if w.Number == 0 || w.Found == nil {
			left = append(left, w)
		}
	}
	return left
}

// with returns page, which was read from the sequence number from on, with the kept messages that
// would stand in it. An empty page is the end of the queue. first are those of them that it returns
// for the first time.
func (k *Kept) with(page []*link.Message, from int64) (all, first []*link.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orderLocked()
	begin, _ := slices.BinarySearchFunc(k.ordered, from, func(m keptMessage, n int64) int { return cmp.Compare(m.SequenceNumber, n) })
	fitting := k.ordered[begin:]
	if len(page) > 0 {
		last := page[len(page)-1].SequenceNumber
		end, _ := slices.BinarySearchFunc(fitting, last+1, func(m keptMessage, n int64) int { return cmp.Compare(m.SequenceNumber, n) })
		fitting = fitting[:end]
	}
	if len(fitting) == 0 {
		return page, page
	}
	there := make(map[Identity]bool, len(page))
	for _, m := range page {
		there[IdentityOf(m)] = true
	}
	all, first = slices.Clone(page), slices.Clone(page)
	for i := range fitting {
		m := &fitting[i]
		if there[IdentityOf(m.Message)] {
			continue
		}
		all = append(all, m.Message)
		if !m.shown {
			m.shown, first = true, append(first, m.Message)
		}
	}
	slices.SortStableFunc(all, func(a, b *link.Message) int { return cmp.Compare(a.SequenceNumber, b.SequenceNumber) })
	return all, first
}
