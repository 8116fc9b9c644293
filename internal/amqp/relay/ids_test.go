// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/testing/testseed"
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

func TestIdsThatRepeatAreDeliveriesOfTheirOwn(t *testing.T) {
	var m idMap
	for out, in := range []uint32{5, 6, 6, 8, 7, 9} { // as threads of the Python SDK write them
		m.add(in, uint32(out))
	}
	var outs, ins []span
	m.outs(span{6, 7}, func(s span) { outs = append(outs, s) })
	if want := []span{{1, 1}, {2, 2}, {4, 4}}; !slices.Equal(outs, want) {
		t.Errorf("outs of 6 and 7 = %v, want %v", outs, want)
	}
	m.ins(span{1, 4}, func(s span) { ins = append(ins, s) })
	if want := []span{{6, 6}, {6, 6}, {8, 8}, {7, 7}}; !slices.Equal(ins, want) {
		t.Errorf("ins of 1 to 4 = %v, want %v", ins, want)
	}
}

func TestDeliveriesThatShareAnIDAllGoOn(t *testing.T) {
	for name, configure := range map[string]func(*Config){
		"plain":   nil,
		"watched": watching(&fakeWatcher{deliver: func(*Delivery) (DeliveryHandler, *amqp.Error) { return atOnce{}, nil }}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, configure)
				p := s.peer()
				p.attachSender("s", 0, "orders")
				p.expect("flow")
				ids := []uint32{3, 3, 5, 4} // as threads of the Python SDK write them
				for _, id := range ids {
					p.tryTransfer(0, id)
				}
				got := p.came("disposition", "detach", "end", "close")
				for _, id := range []string{"3", "4", "5"} {
					if !slices.ContainsFunc(got, func(d string) bool {
						return strings.HasPrefix(d, "disposition") && strings.Contains(d, id) && strings.Contains(d, "accepted")
					}) {
						t.Errorf("the client got %q, want %s accepted", got, id)
					}
				}
				if n := len(s.waiting()); n != len(ids) {
					t.Errorf("%d messages came through, want %d", n, len(ids))
				}
			})
		})
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
	if !slices.Equal(want, got) {
		t.Errorf("%s of %v (-want +got):\n%s", what, r, cmp.Diff(want, got))
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
