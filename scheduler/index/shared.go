// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// shareTick is how often there is anything said to other processes, and asked of them.
	shareTick = 500 * time.Millisecond
	// A reference is announced when nobody has settled it here within announceAfter; a settlement is
	// passed after passAfter, so that its sender has announced it by then.
	announceAfter = 500 * time.Millisecond
	passAfter     = 2 * time.Second
	// shareLead is how long before it is due a companion has to be settled elsewhere for that to be
	// of use.
	shareLead = passAfter + 2*shareTick + CancelLead
	// sharedMost bounds what waits to be announced, what waits to be passed, and the keys that are
	// announced at a time. More is not shared, and its companions become due.
	sharedMost = defaultReferences
	// shareLife is the longest that a key is announced for at once.
	shareLife = 24 * time.Hour
)

// An Exchange passes settlements between the processes of one fleet. What it loses costs a check.
// Its calls are bounded in time.
type Exchange interface {
	// Announce has records about the keys passed to inbox, about each for as long as it lives.
	Announce(ctx context.Context, inbox string, keys []string, lives []time.Duration) error
	// Pass gives a record about each key to the process that has announced it, if any.
	Pass(ctx context.Context, keys []string, records [][]byte) error
	// Passed takes records out of an inbox, as many as go together. Few of them are all.
	Passed(ctx context.Context, inbox string) (records [][]byte, err error)
	// Well reports whether it answered when it was last asked.
	Well() bool
}

// A Shared is a [Memory] whose references are taken off by settlements through other processes,
// too. Run does the sharing; what it has not got to becomes due.
//
// It is the process which has sent a message that decides what a settlement takes off, by the same
// rules as for its own: decision 0010. What is exchanged are facts that stay true, so it does not
// matter how often or how late they come.
type Shared struct {
	*Memory
	exchange Exchange
	inbox    string
	failed   func(error)

	mu      sync.Mutex
	written []written // oldest first
	waiting int       // references of written
	foreign []settled // oldest first
}

// written is a companion whose references may be announced.
type written struct {
	at     time.Time
	entity string
	refs   []Reference
}

// settled is what was settled here and not sent from here.
type settled struct {
	at time.Time
	Delivered
}

// NewShared makes an index of this process that shares with others by way of x. failed gets the
// errors of x.
func NewShared(own *Memory, x Exchange, failed func(error)) *Shared {
	return &Shared{Memory: own, exchange: x, inbox: rand.Text(), failed: failed}
}

// Carried is described at [Index].
func (x *Shared) Carried(id ID, entity string, due time.Time, refs []Reference) {
	x.Memory.Carried(id, entity, due, refs)
	if !x.exchange.Well() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(refs); n > 0 && x.waiting+n <= sharedMost {
		x.written = append(x.written, written{time.Now(), entity, refs})
		x.waiting += n
	}
}

// Take is described at [Index].
func (x *Shared) Take(d Delivered) bool {
	if x.Memory.Take(d) {
		return true
	}
	if x.Known(d.Key) || !x.exchange.Well() {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.foreign) < sharedMost {
		x.foreign = append(x.foreign, settled{time.Now(), d})
	}
	return false
}

// Expects is described at [Index].
func (x *Shared) Expects(entity string, messageID, sessionID []byte) (Key, bool) {
	if key, known := x.Memory.Expects(entity, messageID, sessionID); known || !x.exchange.Well() {
		return key, known
	}
	return sharedKeyOf(entity, messageID, sessionID), true
}

// Run takes off what is settled through other processes, and passes them what is settled here,
// until ctx ends. inSlots reports whether a slot may stand for a message of entity that was stamped
// with the instant at; taken is called when something has been taken off.
func (x *Shared) Run(ctx context.Context, inSlots func(entity string, at time.Time) bool, taken func()) {
	announced := map[Key]announcement{} // by what others know them by
	tick := time.NewTicker(shareTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		maps.DeleteFunc(announced, func(_ Key, a announcement) bool { return now.After(a.until) })
		err := errors.Join(x.announce(ctx, now, announced), x.pass(ctx, now))
		if len(announced) > 0 {
			n, passedErr := x.passed(ctx, announced, inSlots)
			err = errors.Join(err, passedErr)
			if n > 0 {
				taken()
			}
		}
		if err != nil && ctx.Err() == nil {
			x.failed(err)
		}
	}
}

// An announcement is a key of this process that others may say something about.
type announcement struct {
	key   Key
	until time.Time
}

// announce announces what is worth it, as far as there is room, and notes it in announced.
func (x *Shared) announce(ctx context.Context, now time.Time, announced map[Key]announcement) error {
	x.mu.Lock()
	n := 0
	for n < len(x.written) && now.Sub(x.written[n].at) >= announceAfter {
		x.waiting -= len(x.written[n].refs)
		n++
	}
	ripe := slices.Clone(x.written[:n])
	x.written = slices.Delete(x.written, 0, n)
	x.mu.Unlock()
	var keys []string
	var lives []time.Duration
	for _, w := range ripe {
		for i := range w.refs {
			r := &w.refs[i]
			// By our clock: where that is wrong, some are announced for nothing, or for too short a time.
			life := min(r.Deadline.Sub(now), shareLife)
			if life < shareLead || len(announced) >= sharedMost {
				continue
			}
			if own := KeyOf(w.entity, r.MessageID, r.SessionID); x.waits(own, r) {
				key := sharedKeyOf(w.entity, r.MessageID, r.SessionID)
				announced[key] = announcement{own, now.Add(life)}
				keys, lives = append(keys, key.text()), append(lives, life)
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return x.exchange.Announce(ctx, x.inbox, keys, lives)
}

// pass passes on what was settled here and sent from elsewhere.
func (x *Shared) pass(ctx context.Context, now time.Time) error {
	x.mu.Lock()
	n := 0
	for n < len(x.foreign) && now.Sub(x.foreign[n].at) >= passAfter {
		n++
	}
	ripe := slices.Clone(x.foreign[:n])
	x.foreign = slices.Delete(x.foreign, 0, n)
	x.mu.Unlock()
	if n == 0 {
		return nil
	}
	keys, records := make([]string, n), make([][]byte, n)
	for i := range ripe {
		keys[i], records[i] = ripe[i].Key.text(), ripe[i].record()
	}
	return x.exchange.Pass(ctx, keys, records)
}

// few records are all that lay in the inbox.
const few = 100

// passed takes off what others have passed.
func (x *Shared) passed(ctx context.Context, announced map[Key]announcement, inSlots func(entity string, at time.Time) bool) (taken int, err error) {
	for {
		records, err := x.exchange.Passed(ctx, x.inbox)
		if err != nil {
			return taken, err
		}
		for _, r := range records {
			d, ok := parseRecord(r)
			a, ours := announced[d.Key]
			if !ok || !ours || inSlots(d.Entity, d.Enqueued) {
				continue
			}
			d.Key = a.key
			if x.Memory.Take(d) {
				taken++
			}
		}
		if len(records) < few {
			return taken, nil
		}
	}
}

// sharedKeyOf is KeyOf as all processes calculate it.
func sharedKeyOf[T string | []byte](entity string, messageID, sessionID T) Key {
	var room [256]byte
	sum := sha256.Sum256(appendKey(room[:0], entity, messageID, sessionID))
	return Key{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

func (k Key) text() string {
	b := binary.BigEndian.AppendUint64(nil, k[0])
	return string(binary.BigEndian.AppendUint64(b, k[1]))
}

// recordSize is the least that a Delivered takes between processes: key, stamp and deadline. Its
// entity follows.
const recordSize = 32

func (d *Delivered) record() []byte {
	b := append(make([]byte, 0, recordSize+len(d.Entity)), d.Key.text()...)
	b = binary.BigEndian.AppendUint64(b, uint64(d.Enqueued.UnixNano()))
	b = binary.BigEndian.AppendUint64(b, uint64(d.Deadline.UnixNano()))
	return append(b, d.Entity...)
}

func parseRecord(b []byte) (d Delivered, ok bool) {
	if len(b) < recordSize {
		return d, false
	}
	d.Entity = string(b[recordSize:])
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[i:]) }
	d.Key = Key{at(0), at(8)}
	d.Enqueued, d.Deadline = time.Unix(0, int64(at(16))), time.Unix(0, int64(at(24)))
	return d, true
}
