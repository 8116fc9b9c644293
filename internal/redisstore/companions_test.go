// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/redistest"
)

// noon is when the items of a test are due, by a clock of their own.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func item(id string, due time.Time) Item {
	return Item{ID: id, Due: due, ContentType: "type", Subject: "subject", Body: []byte("body of\x00" + id)}
}

func numberedItems(n int, due time.Time) (items []Item) {
	for i := range n {
		items = append(items, item(fmt.Sprint("i-", i), due))
	}
	return items
}

// claimed is what is claimed at an instant, sorted.
func claimed(t testing.TB, c *Companions, now time.Time, n int) (leases []Lease) {
	t.Helper()
	c.wakeAll()
	for empty := 0; empty < 20 && len(leases) < n; empty++ { // a claim has bounds of its own, and is of few places if it is of few items
		got, wait, err := c.Claim(t.Context(), now, n-len(leases))
		must(t, err)
		if leases = append(leases, got...); len(got) > 0 {
			empty = 0
		}
		if wait > 0 {
			break
		}
	}
	slices.SortFunc(leases, func(a, b Lease) int { return strings.Compare(a.ID, b.ID) })
	return leases
}

func ids(leases []Lease) (ids []string) {
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	return ids
}

func wantIDs(t testing.TB, what string, leases []Lease, want ...string) {
	t.Helper()
	if got := ids(leases); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func wantCounts(t testing.TB, c *Companions, waiting, leased, dead int64) {
	t.Helper()
	got, err := c.Counts(t.Context())
	must(t, err)
	if want := (Counts{Waiting: waiting, Leased: leased, Dead: dead}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

func TestCompanionsComeWhenTheyAreDueAndOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx, a, b := t.Context(), connect().Companions(), connect().Companions()
		note := Item{ID: "note", Due: noon, ContentType: "other", Body: []byte("{}"), Note: true}
		late := item("late", noon.Add(time.Minute))
		items := append(numberedItems(3, noon), late, note)
		must(t, a.Put(ctx, items))
		must(t, a.Put(ctx, items[:2])) // as a retry does
		wantCounts(t, a, 5, 0, 0)
		wantIDs(t, "before they are due", claimed(t, b, noon.Add(-time.Millisecond), 10))
		first := claimed(t, b, noon, 2)
		second := claimed(t, a, noon, 10)
		if len(first) != 2 || len(second) != 2 {
			t.Errorf("claimed %v and %v, want two and the other two", ids(first), ids(second))
		}
		wantIDs(t, "what is claimed", claimed(t, b, noon.Add(time.Second), 10))
		all := append(first, second...)
		for _, l := range all {
			i := slices.IndexFunc(items, func(it Item) bool { return it.ID == l.ID })
			if want := items[i]; string(l.Body) != string(want.Body) || l.ContentType != want.ContentType || l.Subject != want.Subject || !l.Due.Equal(want.Due) || l.Note != want.Note {
				t.Errorf("claimed %+v, want %+v", l.Item, want)
			}
		}
		for _, l := range first {
			must(t, b.Done(ctx, l))
			must(t, b.Done(ctx, l)) // likewise
		}
		must(t, a.GiveBack(ctx, second[0]))
		must(t, a.Bury(ctx, second[1], "Reason", "why"))
		wantCounts(t, a, 2, 0, 1)
		wantIDs(t, "what was given back", claimed(t, b, noon, 10), second[0].ID)
		var dead []Dead
		must(t, b.Dead(ctx, func(d Dead) bool { dead = append(dead, d); return true }))
		if len(dead) != 1 || dead[0].ID != second[1].ID || dead[0].Reason != "Reason" || dead[0].Description != "why" || string(dead[0].Body) != string(second[1].Body) {
			t.Errorf("dead %+v, want the one that was buried", dead)
		}
	})
}

func TestAnInstantIsKeptToTheMillisecondAndNeverEarly(t *testing.T) {
	c := open(t, "redis://"+redistest.InMemory(t).Addr()).Companions()
	must(t, c.Put(t.Context(), []Item{item("i", noon.Add(time.Nanosecond))}))
	wantIDs(t, "a nanosecond before", claimed(t, c, noon, 1))
	wantIDs(t, "a millisecond later", claimed(t, c, noon.Add(time.Millisecond), 1), "i")
}

func TestCompanionsThatNobodyHasAreWithdrawn(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx, c := t.Context(), connect().Companions()
		must(t, c.Put(ctx, numberedItems(3, noon)))
		taken := claimed(t, c, noon, 1)
		var all []string
		for i := range 4 {
			all = append(all, fmt.Sprint("i-", i))
		}
		withdrawn, err := c.Withdraw(ctx, all)
		must(t, err)
		if len(withdrawn) != 2 || slices.Contains(withdrawn, taken[0].ID) {
			t.Errorf("withdrawn %v, want the two that wait and not %s", withdrawn, taken[0].ID)
		}
		wantCounts(t, c, 0, 1, 0)
	})
}

// A worker that is gone renews nothing, and what it had comes to another. One that is there keeps
// it, and gets nothing twice.
func TestClaimsLapseUnlessTheyAreRenewed(t *testing.T) {
	r := redistest.Start(t)
	ctx := t.Context()
	a, b := open(t, "redis://"+r.Addr).Companions(), open(t, "redis://"+r.Addr).Companions()
	a.life = time.Hour
	must(t, a.Put(ctx, numberedItems(2, noon)))
	gone := claimed(t, a, noon, 1)
	wantIDs(t, "before it lapses", claimed(t, b, noon, 1), "i-1")
	lapse := func() {
		t.Helper()
		a.life = -time.Minute
		must(t, a.Renew(ctx))
		a.life = time.Hour
	}
	lapse()
	wantIDs(t, "what one's own worker has in hand", claimed(t, a, noon, 5))
	lapse()
	wantIDs(t, "what another had", claimed(t, b, noon, 5), gone[0].ID)
	must(t, a.Renew(ctx)) // of what it has no more
	must(t, a.GiveBack(ctx, gone[0]))
	wantCounts(t, b, 0, 2, 0)
	must(t, a.Done(ctx, gone[0]))
	wantCounts(t, b, 0, 1, 0)
}

// A worker that lets an item go gets it again like any other, and not only after a restart.
func TestAnItemThatIsLetGoIsClaimedAgainOnceItsLeaseLapses(t *testing.T) {
	r := redistest.Start(t)
	ctx := t.Context()
	a := open(t, "redis://"+r.Addr).Companions()
	a.life = time.Hour
	must(t, a.Put(ctx, numberedItems(1, noon)))
	had := claimed(t, a, noon, 1)
	a.LetGo(had[0])
	wantIDs(t, "before it lapses", claimed(t, a, noon, 1))
	a.life = -time.Minute
	if _, err := renew(ctx, a.s.client, a.placeOf(had[0].ID, false), a.token, a.life, []string{had[0].ID}); err != nil {
		t.Fatal(err)
	}
	a.life = time.Hour
	must(t, a.Renew(ctx)) // of what it holds: nothing
	wantIDs(t, "once it has lapsed", claimed(t, a, noon, 1), had[0].ID)
}

// Many workers claim side by side: each item comes to one of them.
func TestEachItemIsClaimedOnce(t *testing.T) {
	r := redistest.Start(t)
	ctx := t.Context()
	const n, workers = 2000, 4
	must(t, open(t, "redis://"+r.Addr).Companions().Put(ctx, numberedItems(n, noon)))
	var mu sync.Mutex
	seen := map[string]int{}
	var all sync.WaitGroup
	for range workers {
		c := open(t, "redis://"+r.Addr).Companions()
		all.Go(func() {
			for {
				got, wait, err := c.Claim(ctx, noon, 50)
				if err != nil || len(got) == 0 && wait > 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				for _, l := range got {
					seen[l.ID]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s was claimed %d times", id, times)
		}
	}
	if len(seen) != n {
		t.Errorf("%d were claimed, want %d", len(seen), n)
	}
}

// A worker is woken by a companion that is due before all that it knows of, whichever process keeps
// it, and by nothing else.
func TestAWorkerIsWokenForWhatIsDueFirst(t *testing.T) {
	r := redistest.Start(t)
	ctx := t.Context()
	worker, sender := open(t, "redis://"+r.Addr).Companions(), open(t, "redis://"+r.Addr).Companions()
	listens(t, worker)
	rest := func() {
		t.Helper()
		for {
			select {
			case <-worker.Woken():
			default:
			}
			_, wait, err := worker.Claim(ctx, noon, 1)
			must(t, err)
			if wait > 0 {
				return
			}
		}
	}
	rest()
	must(t, sender.Put(ctx, []Item{item("second", noon.Add(time.Hour))}))
	<-worker.Woken()
	rest()
	must(t, sender.Put(ctx, []Item{item("third", noon.Add(2*time.Hour)), item("first", noon.Add(time.Minute))}))
	<-worker.Woken()
	rest()
	must(t, sender.Put(ctx, []Item{item("last", noon.Add(3*time.Hour))}))
	must(t, sender.Put(ctx, []Item{item("now", noon)})) // which comes behind it
	<-worker.Woken()
	wantIDs(t, "what woke it", claimed(t, worker, noon, 1), "now")
}

// An acknowledged companion is there after kill -9, and a request that is made while Redis is away
// is answered when it is back.
func TestCompanionsOutliveTheirServer(t *testing.T) {
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	ctx, c := t.Context(), open(t, "redis://"+r.Addr).Companions()
	must(t, c.Put(ctx, numberedItems(3, noon)))
	taken := claimed(t, c, noon, 1)
	r.Kill()
	put := make(chan error, 1)
	go func() { put <- c.Put(ctx, []Item{item("meanwhile", noon)}) }()
	if _, _, err := c.Claim(ctx, noon.Add(-time.Hour), 1); c.places[0].rests() == 0 && err == nil {
		t.Error("a claim from a server that was killed succeeds")
	}
	r.Restart()
	must(t, <-put)
	other := open(t, "redis://"+r.Addr).Companions()
	wantIDs(t, "after the restart", claimed(t, other, noon, 10), slices.DeleteFunc([]string{"i-0", "i-1", "i-2", "meanwhile"}, func(id string) bool { return id == taken[0].ID })...)
	must(t, c.Done(ctx, taken[0]))
	wantCounts(t, other, 0, 3, 0)
}

func TestAFrozenServerIsWaitedForAndThenNot(t *testing.T) {
	r := redistest.Start(t)
	ctx, c := t.Context(), open(t, "redis://"+r.Addr).Companions()
	c.s.cfg.Slack = .06
	r.Freeze()
	if err := c.Put(ctx, numberedItems(1, noon)); err == nil || c.Failure() == nil {
		t.Errorf("Put = %v, failure %v; want an error of a server that does not answer", err, c.Failure())
	}
	r.Thaw()
	c.s.cfg.Slack = slack
	must(t, c.Put(ctx, numberedItems(1, noon))) // which may have come in before
	wantCounts(t, c, 1, 0, 0)
}

// A server whose memory is full refuses new companions at once, and keeps the old ones.
func TestAFullServerRefusesAndKeeps(t *testing.T) {
	r := redistest.Start(t)
	ctx, c := t.Context(), open(t, "redis://"+r.Addr).Companions()
	must(t, c.Put(ctx, numberedItems(2, noon)))
	r.Must("CONFIG", "SET", "maxmemory", "1")
	if err := c.Put(ctx, []Item{item("more", noon)}); err == nil || !final(err) {
		t.Errorf("Put = %v, want a refusal that is final", err)
	}
	r.Must("CONFIG", "SET", "maxmemory", "0")
	wantIDs(t, "what there is", claimed(t, c, noon, 5), "i-0", "i-1")
}

func TestWhatRedisSaysOfItsMemoryAndItsDisk(t *testing.T) {
	r := redistest.Start(t)
	c := open(t, "redis://"+r.Addr).Companions()
	problem := func(want string, hopeless bool) {
		t.Helper()
		d, err := c.Inspect(t.Context())
		must(t, err)
		if got, no := d.Problem(); !strings.Contains(got, want) || want == "" && got != "" || no != hopeless {
			t.Errorf("problem %q, hopeless %v; want %q, %v", got, no, want, hopeless)
		}
	}
	problem("no append-only file", false)
	r.Must("CONFIG", "SET", "appendonly", "yes")
	problem("", false)
	r.Must("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	problem("", false) // its memory has no bound
	r.Must("CONFIG", "SET", "maxmemory", "100mb")
	problem("maxmemory-policy allkeys-lru", true)
	r.Must("CONFIG", "SET", "maxmemory-policy", "volatile-lru") // nothing of ours is
	problem("", false)
}

func TestItemsAreSeenWithoutBeingTouched(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx, c := t.Context(), connect().Companions()
		must(t, c.Put(ctx, numberedItems(700, noon)))
		must(t, c.Put(ctx, []Item{{ID: "sweep-[a]*-1", Due: noon, Note: true}}))
		claimed(t, c, noon, 1)
		seen := map[string]bool{}
		must(t, c.Walk(ctx, func(it Item) bool { seen[it.ID] = true; return true }))
		if len(seen) != 701 {
			t.Errorf("%d items are seen, want 701", len(seen))
		}
		for prefix, want := range map[string]bool{"sweep-[a]*-": true, "sweep-a": false, "sweep-[a]b": false, "i-1": false} {
			n := 0
			if err := c.Notes(ctx, prefix, func(Item) { n++ }); err != nil || n > 0 != want {
				t.Errorf("Notes(%q) shows %d, %v, want some: %v", prefix, n, err, want)
			}
		}
	})
}

// The dead are bounded, and what somebody else has written is shown and buried, and ends nothing.
func TestWhatIsStrangeIsBounded(t *testing.T) {
	r := redistest.Start(t)
	ctx, c := t.Context(), open(t, "redis://"+r.Addr).Companions()
	k := c.places[0]
	r.Must("HSET", k.records, "strange", "no record")
	r.Must("ZADD", k.due, "0", "strange", "1", "without a record")
	got := claimed(t, c, noon, 5)
	wantIDs(t, "what is strange", got, "strange")
	if got[0].ContentType != "" || got[0].Body != nil {
		t.Errorf("it is %+v, want nothing of it", got[0])
	}
	must(t, c.Bury(ctx, got[0], "x", "y"))
	r.Must("RPUSH", k.dead, "no JSON")
	n := 0
	must(t, c.Dead(ctx, func(Dead) bool { n++; return true }))
	if n != 2 {
		t.Errorf("%d dead are shown, want 2", n)
	}
	wantCounts(t, c, 0, 0, 2)
	for i := range 20 {
		must(t, c.Put(ctx, []Item{item(fmt.Sprint(i), noon)}))
		must(t, finish(ctx, c.s.client, k, 3, []any{fmt.Sprint(i), "{}"}))
	}
	wantCounts(t, c, 0, 0, 3)
}

// An answer that does not come costs its worker a second, and not the life of a lease.
func TestAClaimWithoutAnAnswerIsMadeAnew(t *testing.T) {
	r := redistest.Start(t)
	ctx, c := t.Context(), open(t, "redis://"+r.Addr).Companions()
	must(t, c.Put(ctx, numberedItems(3, noon)))
	wantIDs(t, "what it has in hand", claimed(t, c, noon, 1), "i-0")
	k := c.places[0]
	_, _, _, err := lease(ctx, c.s.client, k, noon.UnixMilli(), c.life, 5, claimBytes, c.token) // whose answer is lost
	must(t, err)
	wantIDs(t, "before it knows", claimed(t, c, noon, 5))
	k.setNext(k.turn(), time.Now(), 0, errors.New("no answer"))
	wantIDs(t, "what was lost", claimed(t, c, noon, 5), "i-1", "i-2")
	wantIDs(t, "and then", claimed(t, c, noon, 5))
}
