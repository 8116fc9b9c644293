// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"math"
	"strings"
	"time"
)

// A Reference names a message and says when the broker can have enqueued it. Instants are
// nanoseconds of Unix time.
type Reference struct {
	Key         Key   // zero: it has no message-id, so no settlement can be tied to it
	From, Until int64 // both 0: it has no window
	Deadline    int64
	Within      int64 // 0: Deadline does not depend on the enqueued-time
}

func (r *Reference) isNamed() bool { return r.Key != Key{} }

// A reference is one that was put.
type reference struct {
	Reference
	entity   string
	state    state
	refused  bool     // the broker has refused the message, as far as its sender knows
	accepted int64    // when the message was accepted at the latest; 0 = that is not known
	carrier  *carrier // nil until it is written
}

type state uint8

const (
	open state = iota
	taken
	forgotten
)

func (in *reference) isUnconfirmed() bool { return in.accepted == 0 }

func (in *reference) hasWindow() bool { return in.From != 0 }

// lastStamp is the last instant with which its message could be stamped, or be taken to be.
func (in *reference) lastStamp() int64 {
	switch {
	case !in.hasWindow():
		return math.MaxInt64
	case in.isUnconfirmed():
		return in.Until + int64(takeWindow)
	}
	return in.accepted + int64(takeWindow)
}

// mayBe reports whether a message with that stamp could have been sent with the reference.
func (in *reference) mayBe(stamp int64) bool {
	return !in.hasWindow() || stamp >= in.From-int64(takeWindow) && stamp <= in.lastStamp()
}

// agrees reports whether a message with that stamp has the deadline of the reference.
func (in *reference) agrees(stamp, deadline int64) bool {
	want := in.Deadline
	if in.Within > 0 {
		want = stamp + in.Within
	}
	return time.Duration(deadline-want).Abs() <= time.Millisecond
}

// A Key stands for an entity, a message-id and a session-id. It means nothing outside of this
// process.
type Key [2]uint64

// seeds are of this process alone, so that nobody can choose ids whose keys are equal.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// KeyOf is the key of messages of an entity, whose name is spelled in any case.
func KeyOf[T string | []byte](entity string, messageID, sessionID T) Key {
	var room [256]byte
	// The lengths keep apart what would read alike.
	b := binary.BigEndian.AppendUint32(room[:0], uint32(len(messageID)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(sessionID)))
	b = append(append(append(b, messageID...), sessionID...), strings.ToLower(entity)...)
	return Key{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
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
