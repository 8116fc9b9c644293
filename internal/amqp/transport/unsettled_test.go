// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"overdue/internal/testing/testseed"
)

func TestSerialNumbersWrap(t *testing.T) {
	var u Unsettled[*int]
	v := new(int)
	start := uint32(math.MaxUint32 - 50)
	for i := range uint32(100) {
		u.Add(start+i, v)
	}
	for i := range uint32(100) {
		if i%3 == 0 && !Remove(&u, start+i, v) {
			t.Fatalf("remove %d = false, want true", start+i)
		}
	}
	n := 0
	u.Each(start+10, start+89, func(**int) bool { n++; return true })
	if want := 80 - 26; n != want || u.live != 100-34-want {
		t.Errorf("each met %d and left %d, want %d and %d", n, u.live, want, 100-34-want)
	}
	u.All(func(**int) bool { return true })
	if u.live != 0 || len(u.entries) != 0 {
		t.Errorf("%d entries, %d live after all were removed", len(u.entries), u.live)
	}
}

func TestUnsettledSpaceIsThatOfTheLiving(t *testing.T) {
	var u Unsettled[*int]
	v := new(int)
	u.Add(0, v) // stays
	for i := uint32(1); i < 1_000_000; i++ {
		u.Add(i, v)
		Remove(&u, i, v)
	}
	if cap(u.entries) > 64 {
		t.Errorf("room for %d entries is kept for one delivery", cap(u.entries))
	}
}

// A list keeps what is unsettled in the order of its coming.
func TestUnsettledIsFoundInAnyOrderOfIDs(t *testing.T) {
	seed := testseed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	type held struct {
		id    uint32
		value *int
	}
	for range 300 {
		var u Unsettled[*int]
		var model []held
		last := uint32(0) - random.Uint32N(100) // wraps
		for range 300 {
			switch k := random.IntN(4); {
			case k < 2:
				id := last - random.Uint32N(20)
				if k == 0 {
					last += 1 + random.Uint32N(3)
					id = last
				}
				h := held{id, new(int)}
				u.Add(h.id, h.value)
				model = append(model, h)
			case k == 2 && len(model) > 0:
				i := random.IntN(len(model))
				if !Remove(&u, model[i].id, model[i].value) {
					t.Fatalf("delivery %d is not found", model[i].id)
				}
				model = slices.Delete(model, i, i+1)
			default:
				first := last - random.Uint32N(30)
				end := first + random.Uint32N(10)
				want := 0
				model = slices.DeleteFunc(model, func(h held) bool {
					in := h.id-first <= end-first
					if in {
						want++
					}
					return in
				})
				got := 0
				u.Each(first, end, func(**int) bool { got++; return true })
				if got != want {
					t.Fatalf("%d deliveries from %d to %d, want %d", got, first, end, want)
				}
			}
			if u.live != len(model) {
				t.Fatalf("%d live, want %d", u.live, len(model))
			}
		}
	}
}
