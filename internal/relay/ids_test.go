// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/testseed"
)

// A model keeps every pair of ids, which the map does not.
func TestIdsAreKnownOnBothSides(t *testing.T) {
	seed := testseed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var m idMap
		in, out := random.Uint32(), random.Uint32()
		if random.IntN(2) == 0 {
			in, out = ^uint32(0)-20, ^uint32(0)-10 // both wrap
		}
		firstIn, firstOut := in, out
		outs, ins := map[uint32]uint32{}, map[uint32]uint32{}
		for range 1 + random.IntN(200) {
			switch random.IntN(6) {
			case 0:
				in++ // it did not go on
			case 1:
				out++ // one of the relay's own
			default:
				m.add(in, out)
				outs[in], ins[out] = out, in
				in++
				out++
			}
		}
		for range 50 {
			a := random.Uint32N(in-firstIn+1) - 3
			r := span{firstIn + a, firstIn + a + random.Uint32N(60)}
			check(t, "outs", r, outs, m.outs)
			a = random.Uint32N(out-firstOut+1) - 3
			r = span{firstOut + a, firstOut + a + random.Uint32N(60)}
			check(t, "ins", r, ins, m.ins)
		}
		if t.Failed() {
			return
		}
	}
}

func check(t *testing.T, what string, r span, model map[uint32]uint32, ask func(span, func(span))) {
	t.Helper()
	var got, want []uint32
	ask(r, func(s span) {
		for id := s.first; ; id++ {
			got = append(got, id)
			if id == s.last {
				return
			}
		}
	})
	for id := r.first; ; id++ {
		if other, ok := model[id]; ok {
			want = append(want, other)
		}
		if id == r.last {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s of %v (-want +got):\n%s", what, r, diff)
	}
}

func TestWhatIsForgottenIsNotMistakenForAnother(t *testing.T) {
	var m idMap
	for i := range uint32(3 * maxRuns) {
		m.add(2*i, i) // each a run of its own
	}
	if n := len(m.runs); n > maxRuns {
		t.Errorf("%d runs are remembered, want at most %d", n, maxRuns)
	}
	m.ins(span{0, 10}, func(s span) { t.Errorf("ins of what is forgotten = %v, want none", s) })
	var got []span
	m.ins(span{3*maxRuns - 2, 3*maxRuns - 1}, func(s span) { got = append(got, s) })
	if want := []span{{6*maxRuns - 4, 6*maxRuns - 4}, {6*maxRuns - 2, 6*maxRuns - 2}}; !slices.Equal(got, want) {
		t.Errorf("ins of the last two = %v, want %v", got, want)
	}
}
