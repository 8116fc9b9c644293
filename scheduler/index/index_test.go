// SPDX-License-Identifier: Apache-2.0

package index

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"overdue/internal/testing/testseed"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// sent is a message with id that was sent at the instant at, to be received within a minute.
func sent(id string, at time.Time) Reference {
	r := Reference{
		From: at.Add(-5 * time.Millisecond).UnixNano(), Until: at.Add(2 * time.Second).UnixNano(),
		Deadline: at.Add(time.Minute).UnixNano(), Within: int64(time.Minute),
	}
	if id != "" {
		r.Key = KeyOf("Orders", id, "") // in another case than it is asked for
	}
	return r
}

// stamped is that message as it is delivered when the broker has stamped it with the instant at.
func stamped(id string, at time.Time) Delivered {
	return Delivered{Key: KeyOf("orders", id, ""), Entity: "orders", Enqueued: at, Deadline: at.Add(time.Minute)}
}

// carry adds a companion with the references to the index, and returns its id.
func carry(x *Index, n byte, refs ...Reference) ID {
	id := ID{n}
	x.Carried(id, "orders", noon.Add(time.Minute), refs)
	return id
}

func needlessIDs(x *Index) (ids []ID) {
	for _, n := range x.Needless(time.Time{}) {
		ids = append(ids, n.ID)
	}
	return ids
}

func TestIndex(t *testing.T) {
	answered := noon.Add(20 * time.Millisecond) // when its sender got the acknowledgement
	r := sent("m", noon)
	taken := func(t *testing.T, x *Index, d Delivered, want bool) {
		t.Helper()
		if got := x.Take(d); got != want {
			t.Errorf("Take = %v, want %v", got, want)
		}
	}
	put := func(x *Index, refs ...Reference) {
		x.Put("Orders", refs)
		x.Confirm(refs, answered)
	}
	for name, act := range map[string]func(*testing.T, *Index){
		"what has no name is not taken, and its companion stays": func(t *testing.T, x *Index) {
			anonymous := sent("", noon)
			put(x, r, anonymous)
			carry(x, 1, r, anonymous)
			taken(t, x, stamped("", noon), false)
			taken(t, x, stamped("m", noon), true)
			if got := needlessIDs(x); len(got) != 0 {
				t.Errorf("%d companions are needless, want none", len(got))
			}
		},
		"what was sent and is settled is taken once": func(t *testing.T, x *Index) {
			put(x, r)
			carry(x, 1, r)
			if x.Expects("orders", []byte("m"), nil) == (Key{}) {
				t.Error("what was put is not expected")
			}
			taken(t, x, stamped("m", noon), true)
			taken(t, x, stamped("m", noon), false)
			if !x.Taken(r) {
				t.Error("Taken = false of what was taken")
			}
			if got := needlessIDs(x); len(got) != 1 {
				t.Errorf("needless %v, want the companion", got)
			}
			if got := x.Needless(noon.Add(2 * time.Minute)); len(got) != 0 {
				t.Errorf("needless %v of what is due later, want none", got)
			}
		},
		"what is settled before its companion is written": func(t *testing.T, x *Index) {
			put(x, r)
			taken(t, x, stamped("m", noon), true)
			carry(x, 1, r)
			if got := needlessIDs(x); len(got) != 1 {
				t.Errorf("needless %v, want the companion", got)
			}
		},
		"what was never accepted is not taken": func(t *testing.T, x *Index) {
			x.Put("orders", []Reference{r})
			taken(t, x, stamped("m", noon), false)
			if x.Taken(r) {
				t.Error("Taken = true")
			}
		},
		"what was accepted too late to say when it was stamped": func(t *testing.T, x *Index) {
			x.Put("orders", []Reference{r})
			x.Confirm([]Reference{r}, noon.Add(takeWindow))
			taken(t, x, stamped("m", noon), false)
		},
		"another id, session, entity": func(t *testing.T, x *Index) {
			put(x, r)
			taken(t, x, stamped("n", noon), false)
			d := stamped("m", noon)
			d.Key = KeyOf("orders", "m", "s")
			taken(t, x, d, false)
			d.Key = KeyOf("invoices", "m", "")
			taken(t, x, d, false)
		},
		"a stamp before the send, or after the answer": func(t *testing.T, x *Index) {
			put(x, r)
			taken(t, x, stamped("m", time.Unix(0, r.From).Add(-time.Millisecond)), false)
			taken(t, x, stamped("m", answered.Add(time.Millisecond)), false)
			taken(t, x, stamped("m", time.Unix(0, r.From)), true)
		},
		"another deadline": func(t *testing.T, x *Index) {
			put(x, r)
			d := stamped("m", noon)
			d.Deadline = d.Deadline.Add(2 * time.Millisecond)
			taken(t, x, d, false)
		},
		"a send without a window makes its id ambiguous": func(t *testing.T, x *Index) {
			open := r
			open.From, open.Until = 0, 0
			put(x, open)
			taken(t, x, stamped("m", noon), false)
			put(x, r)
			taken(t, x, stamped("m", noon), false)
		},
		"two that could be meant": func(t *testing.T, x *Index) {
			again := sent("m", noon.Add(10*time.Millisecond))
			put(x, r, again)
			carry(x, 1, r)
			carry(x, 2, again)
			taken(t, x, stamped("m", noon.Add(8*time.Millisecond)), false)
		},
		"two of which one could be meant": func(t *testing.T, x *Index) {
			again := sent("m", noon.Add(time.Minute))
			put(x, r, again)
			carry(x, 1, r)
			second := carry(x, 2, again)
			x.Confirm([]Reference{again}, noon.Add(time.Minute+time.Millisecond))
			taken(t, x, stamped("m", noon.Add(time.Minute)), true)
			if got := needlessIDs(x); len(got) != 1 || got[0] != second {
				t.Errorf("needless %v, want the second companion", got)
			}
		},
		"one that another node may have stamped, to the millisecond": func(t *testing.T, x *Index) {
			const ms = time.Millisecond
			again := sent("m", answered.Add(takeWindow))
			put(x, r, again)
			x.Confirm([]Reference{again}, answered.Add(takeWindow+10*ms))
			taken(t, x, stamped("m", answered.Add(takeWindow)), false) // it may be either
			taken(t, x, stamped("m", answered.Add(takeWindow+ms)), true)
		},
		"a companion of many is needless with the last": func(t *testing.T, x *Index) {
			refs := []Reference{sent("a", noon), sent("b", noon), sent("c", noon)}
			put(x, refs...)
			carry(x, 1, refs...)
			for i, id := range []string{"a", "b", "c"} {
				if got := needlessIDs(x); len(got) != 0 {
					t.Fatalf("needless after %d of 3", i)
				}
				taken(t, x, stamped(id, noon), true)
			}
			if got := needlessIDs(x); len(got) != 1 {
				t.Errorf("needless %v, want the companion", got)
			}
		},
		"a companion that carries what is not known is never needless": func(t *testing.T, x *Index) {
			put(x, r)
			carry(x, 1, r, sent("of another", noon))
			taken(t, x, stamped("m", noon), true)
			if got := needlessIDs(x); len(got) != 0 {
				t.Errorf("needless %v, want none", got)
			}
		},
		"numbers": func(t *testing.T, x *Index) {
			put(x, r)
			id := carry(x, 1, r)
			taken(t, x, stamped("m", noon), true)
			if got := x.Needless(noon); len(got) != 1 || got[0].Number != 0 || x.SetNumber(ID{9}, 7) || !x.SetNumber(id, 42) {
				t.Errorf("needless %+v before its number is known, want 0, and that only this companion is ours", got)
			}
			if got := x.Needless(noon); len(got) != 1 || got[0].Number != 42 {
				t.Errorf("needless %+v, want number 42", got)
			}
			x.Forget(id)
			if len(x.Needless(noon)) != 0 || !x.Taken(r) {
				t.Error("want the companion forgotten, and that its message was taken")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { act(t, New(100)) })
	}
}

func TestTheIndexKeepsItsBound(t *testing.T) {
	x := New(10)
	at := noon
	for i := range 1000 {
		r := sent(fmt.Sprint("m-", i), at)
		x.Put("orders", []Reference{r})
		x.Confirm([]Reference{r}, at)
		carry(x, byte(i), r)
		at = at.Add(time.Second)
	}
	if len(x.latest) != 10 || len(x.byKey) != 10 || len(x.carriers) > 10 {
		t.Errorf("%d references, %d keys, %d companions, want 10 at most", len(x.latest), len(x.byKey), len(x.carriers))
	}
	if !x.Take(stamped("m-999", at.Add(-time.Second))) {
		t.Error("the latest is not there")
	}
	for i := range 1000 {
		x.Put("orders", []Reference{sent("same", noon.Add(time.Duration(i)*time.Hour))})
	}
	if n := len(x.latest); n != 10 {
		t.Errorf("%d references after a thousand of one id, want 10 at most", n)
	}
}

// Nobody may ever ask which companions are needless.
func TestTheIndexKeepsItsBoundOfNeedlessCompanions(t *testing.T) {
	x := New(10)
	for i := range 100 {
		at := noon.Add(time.Duration(i) * time.Minute)
		r := sent("m", at)
		x.Put("orders", []Reference{r})
		x.Confirm([]Reference{r}, at)
		carry(x, byte(i), r)
		if !x.Take(stamped("m", at)) {
			t.Fatalf("message %d is not taken", i)
		}
	}
	if got := needlessIDs(x); len(got) != 10 {
		t.Errorf("%d companions are reported needless, want 10", len(got))
	}
}

// A reference that was forgotten before its companion was written may have none, and its message
// could be taken for another's.
func TestForgottenReferenceWithoutCompanionForbidsTakes(t *testing.T) {
	x := New(1)
	first, second := sent("m", noon), sent("m", noon.Add(5*time.Millisecond))
	x.Put("orders", []Reference{first})
	x.Put("orders", []Reference{second}) // takes the place of the first
	x.Confirm([]Reference{second}, noon.Add(20*time.Millisecond))
	carry(x, 1, second)
	if x.Take(stamped("m", noon.Add(5*time.Millisecond))) {
		t.Error("taken, though it may be the message of the first")
	}
	late := sent("m", noon.Add(time.Minute))
	x.Put("orders", []Reference{late})
	x.Confirm([]Reference{late}, noon.Add(time.Minute))
	if !x.Take(stamped("m", noon.Add(time.Minute))) {
		t.Error("not taken a minute later, when it cannot be")
	}
}

// Several sidecars send messages with few ids and learn of settlements of each other's. Whatever is
// taken off where: as long as a message is in the queue, a remaining companion will find it
// at about its deadline.
func TestEveryMessageKeepsACompanion(t *testing.T) {
	seed := testseed.Of(t)
	const margin = 250 * time.Millisecond // of the monitor
	for round := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, round))
		type message struct {
			ref     Reference
			at      *Index
			stamp   time.Time
			settled bool
		}
		sidecars := []*Index{New(1 + rng.IntN(20)), New(64)}
		var all []*message
		at := noon
		for range 40 {
			at = at.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			m := &message{ref: sent("m", at), at: sidecars[rng.IntN(2)]}
			answered := at.Add(time.Duration(rng.IntN([]int{10, 300, 2000}[rng.IntN(3)])) * time.Millisecond)
			m.stamp = at.Add(time.Duration(rng.Int64N(int64(answered.Sub(at)) + 1))).Truncate(time.Millisecond)
			if m.stamp.UnixNano() < m.ref.From {
				m.stamp = time.Unix(0, m.ref.From)
			}
			refs := []Reference{m.ref}
			m.at.Put("orders", refs)
			carry(m.at, byte(len(all)), m.ref)
			if rng.IntN(10) > 0 {
				m.at.Confirm(refs, answered)
			}
			all = append(all, m)
			for range rng.IntN(2) { // a consumer at either sidecar, of what came lately
				if m := all[max(len(all)-1-rng.IntN(3), 0)]; !m.settled {
					m.settled = true
					sidecars[rng.IntN(2)].Take(stamped("m", m.stamp))
				}
			}
		}
		for i, m := range all {
			if m.settled {
				continue
			}
			watched := false
			for _, o := range all {
				stays := !o.at.Taken(o.ref)
				from, until := time.Unix(0, o.ref.From).Add(-margin), time.Unix(0, o.ref.Until).Add(margin)
				includes := !m.stamp.Before(from) && !m.stamp.After(until)
				watched = watched || stays && includes && time.Duration(o.ref.Deadline-m.ref.Deadline).Abs() <= 3*time.Second
			}
			if !watched {
				t.Fatalf("round %d: message %d is in the queue, and no remaining companion would find it", round, i)
			}
		}
	}
}

// The cost of a monitored message for the index from its send to its settlement, in batches of 100.
func BenchmarkIndex(b *testing.B) {
	x := New(References)
	refs := make([]Reference, 100)
	at := noon
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(refs) {
		at = at.Add(time.Second)
		for j := range refs {
			refs[j] = sent(ids[j], at)
		}
		x.Put("orders", refs)
		x.Confirm(refs, at)
		id := ID{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}
		x.Carried(id, "orders", at, refs)
		for j := range refs {
			x.Take(stamped(ids[j], at))
		}
		x.Needless(time.Time{})
		x.Forget(id)
	}
}

// The cost where nobody receives through an endpoint: the index is full, and for each message one
// is forgotten.
func BenchmarkIndexFull(b *testing.B) {
	x := New(References)
	refs := make([]Reference, 100)
	at := noon
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(refs) {
		at = at.Add(time.Second)
		for j := range refs {
			refs[j] = sent(ids[j], at)
			refs[j].Key = KeyOf("orders", ids[j], strconv.Itoa(i))
		}
		x.Put("orders", refs)
		x.Confirm(refs, at)
		id := ID{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}
		x.Carried(id, "orders", at, refs)
	}
}

var ids = func() (ids [100]string) {
	for i := range ids {
		ids[i] = fmt.Sprintf("0b1f0c9e-7a53-4c11-9d0e-%012d", i)
	}
	return ids
}()
