// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
)

// entity describes an entity, or drops it with its messages. It has the key "e number ".
func (h *history) entity(s *Store, r *rand.Rand, record int64, whole bool) {
	id := uint32(1 + r.IntN(2))
	state := maps.Clone(h.states[len(h.states)-1])
	if r.IntN(2) == 0 {
		text := fmt.Sprint("entity ", record)
		state[fmt.Sprint("e ", id, " ")] = text
		s.PutEntity(id, []byte(text))
	} else {
		of := fmt.Sprint(id, " ")
		maps.DeleteFunc(state, func(k, _ string) bool { return strings.HasPrefix(strings.TrimLeft(k, "esi "), of) })
		s.Drop(id)
	}
	h.states, h.whole = append(h.states, state), append(h.whole, whole)
}

// findEntities adds those of the directory to found.
func findEntities(t *testing.T, s *Store, found map[string]string) {
	t.Helper()
	_, err := s.Entities(func(id uint32, description []byte) error {
		found[fmt.Sprint("e ", id, " ")] = string(description)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
