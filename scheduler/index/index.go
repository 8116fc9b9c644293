// SPDX-License-Identifier: Apache-2.0

// Package index remembers which companion waits for which message, so that a message that is
// settled in time takes its companion along.
//
// An index may forget at any time: that costs a needless check and nothing else, but for one thing,
// see [Index.Put]. Nothing but id, session and stamps tie a settlement to a reference, and ids
// repeat. References that could be confused are interchangeable, which makes that safe: decision
// 0010.
//
//	Put ─▶ open ─ Confirm, Take ─▶ taken ─▶ all of a companion are: Needless ─▶ cancelled: Forget
package index

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strings"
	"time"
)

// An Index is safe for concurrent use and does not block.
type Index interface {
	// Put takes what is about to be sent to entity, before it leaves. A reference that the index
	// forgets before Carried has named its companion goes on to forbid takes in its window: it is not
	// certain that the message has a companion.
	Put(entity string, refs []Reference)
	// Confirm takes references of messages that the broker had accepted at the instant by of its
	// clock. Only those can be taken.
	Confirm(entity string, refs []Reference, by time.Time)
	// Refuse takes references of messages that the broker has refused. One of them may be on its queue
	// all the same: a send that is repeated may be refused after it was accepted.
	Refuse(entity string, refs []Reference)
	// Refused reports whether the message of r was refused.
	Refused(entity string, r *Reference) bool
	// Carried notes that a companion waits on the monitor queue, and what for.
	Carried(id ID, entity string, due time.Time, refs []Reference)
	// Expects reports whether a message may have been sent from here, or from another process that
	// wants to know, and the key by which it is known then. It is asked for every message that is
	// delivered through an endpoint.
	Expects(entity string, messageID, sessionID []byte) (Key, bool)
	// Take takes off the reference that the settled message was sent with. It takes none when more
	// than one could be meant.
	Take(d Delivered) bool
	// Taken reports whether r has been taken off.
	Taken(entity string, r *Reference) bool
	// Carries reports whether a companion waits for the message of r, which was found on its entity:
	// the companion carries a reference with its id and deadline, in whose window it was stamped.
	Carries(entity string, r *Reference) bool

	// Needless appends to dst the companions all of whose references have been taken off, each once,
	// and whose numbers are asked for until Number has given them.
	Needless(dst []Needless) []Needless
	// Number takes the sequence number under which a companion waits, and reports whether it is ours.
	Number(id ID, number int64) bool
	// NumberOf is what Number took, 0 when nothing.
	NumberOf(id ID) int64
	// Forget drops a companion that waits no longer.
	Forget(id ID)
}

// A Reference names a message and says when the broker can have enqueued it.
type Reference struct {
	MessageID, SessionID string // without a message-id, no settlement can be tied to it
	From, Until          time.Time
	Deadline             time.Time
	Within               time.Duration // 0 = Deadline does not depend on the enqueued-time
}

// An ID is what a companion's message-id is made of.
type ID [16]byte

const prefix = "overdue-"

// ParseID reads a message-id. ok is false when it is none of a companion.
func ParseID(text string) (id ID, ok bool) {
	text, ok = strings.CutPrefix(text, prefix)
	if !ok || len(text) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

// String is the message-id.
func (id ID) String() string { return prefix + hex.EncodeToString(id[:]) }

// A Needless companion waits for messages that have all been settled.
type Needless struct {
	ID       ID
	Entity   string
	Messages int // that it waits for
	Due      time.Time
	Written  time.Time // by our clock: when it was known to wait
}

// A Key stands for an entity, a message-id and a session-id. It means nothing outside of this
// process, except for those of messages that were not sent from here.
type Key [2]uint64

// seeds are of this process alone, so that nobody can choose ids whose keys are equal, or share a
// chain of the index.
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
	// CancelLead is how long before it is due a companion is left alone.
	CancelLead = 3 * time.Second
)
