// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strings"
)

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
