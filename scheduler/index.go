// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strings"
	"time"
)

// An Index remembers which companion waits for which message, so that a message that is settled in
// time takes its companion along. What it has forgotten costs a needless look and nothing else, so it
// may forget at any time, but for one thing: see Put. It is safe for concurrent use and does not block.
//
// Nothing but id, session and stamps tie a settlement to a reference, and ids repeat. What makes that
// safe is that references which could be confused are interchangeable: decision 0010.
type Index interface {
	// Put is told what is about to be sent to entity, before it leaves. A reference that it forgets
	// before Carried was told of its companion must go on to forbid takes in its window: that the message
	// has a companion is not certain.
	Put(entity string, refs []Reference)
	// Confirm is told that the broker had accepted the messages at the instant by of its clock. Only
	// those can be taken.
	Confirm(entity string, refs []Reference, by time.Time)
	// Carried is told that a companion with that message-id waits on the monitor queue.
	Carried(id companionID, c *Companion)
	// Known reports whether a reference with the key may be there. It is asked for every message that is
	// delivered through a door.
	Known(key Key) bool
	// Take takes off the reference that the settled message was sent with. It takes none when more than
	// one could be meant.
	Take(d Delivered) bool
	// Taken reports whether r has been taken off.
	Taken(entity string, r *Reference) bool

	// Needless appends to dst, and forgets to be told again, the companions all of whose references have
	// been taken off, and whose numbers are asked for until Number has told them.
	Needless(dst []needless) []needless
	// Number is told the sequence number under which a companion waits, and reports whether it is ours.
	Number(id companionID, number int64) bool
	// NumberOf is what Number was told, 0 when nothing.
	NumberOf(id companionID) int64
	// Forget is told that the companion waits no longer.
	Forget(id companionID)
}

// A companionID is what a companion's message-id is made of.
type companionID [16]byte

const companionPrefix = "overdue-"

// parseCompanionID reads a message-id. ok is false when it is none of a companion.
func parseCompanionID(text string) (id companionID, ok bool) {
	text, ok = strings.CutPrefix(text, companionPrefix)
	if !ok || len(text) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

// A needless companion waits for messages that have all been settled.
type needless struct {
	ID       companionID
	Entity   string
	Messages int // that it waits for
	Due      time.Time
	Written  time.Time // by our clock: when it was known to wait
}

// A Key stands for an entity, a message-id and a session-id. It means nothing outside of this process, but for those of messages that
// were not sent from here.
type Key [2]uint64

// seeds are of this process alone, so that nobody can choose ids whose keys are equal, or share a chain of the index.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// KeyOf is the key of messages of an entity, whose name is spelled in any case.
func KeyOf[T string | []byte](entity string, messageID, sessionID T) Key {
	var room [256]byte
	b := appendKey(room[:0], entity, messageID, sessionID)
	return Key{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
}

// appendKey appends what a key stands for.
func appendKey[T string | []byte](b []byte, entity string, messageID, sessionID T) []byte {
	// The lengths keep apart what would read alike.
	b = binary.BigEndian.AppendUint32(b, uint32(len(messageID)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(sessionID)))
	return append(append(append(b, messageID...), sessionID...), strings.ToLower(entity)...)
}

// A Delivered is what is known of a message that was delivered, by what stands on it.
type Delivered struct {
	Key      Key
	Entity   string    // where it was received
	Enqueued time.Time // as the broker stamped it
	Deadline time.Time
}

const (
	// takeWindow is how long the instants may span at which the broker can have stamped a message
	// that is to be taken off. It MUST NOT be more than the margin by which the monitor widens a
	// reference's window: see decision 0010.
	takeWindow = 250 * time.Millisecond
	// takeMargin widens the window of a reference that another could be confused with: the nodes
	// of a broker need not agree to the millisecond.
	takeMargin = 250 * time.Millisecond
)
