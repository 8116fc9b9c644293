// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"overdue/scheduler"
	"testing"
	"time"
)

// openTestStore opens the file of a journal in a folder of the test.
func openTestStore(t *testing.T, maxSize int64) *file {
	t.Helper()
	st, err := openFile(Config{Directory: t.TempDir(), Namespace: "contoso", MaxSize: maxSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// oneCommit is n companions that are put on disk together.
func oneCommit(n int) (companions []scheduler.Companion) {
	for i := range n {
		companions = append(companions, scheduler.Companion{
			Entity: "orders", Due: noon.Add(time.Duration(i) * time.Minute),
			References: []scheduler.Reference{{
				MessageID: fmt.Sprint("m-", i), Sent: noon, From: noon, Until: noon.Add(2 * time.Second),
				Deadline: noon.Add(time.Minute), Within: time.Minute, Stated: "ttl",
			}},
		})
	}
	return companions
}

// The bound holds for what is in the file and for all of a commit together, however many companions
// share it.
func TestTheJournalsBoundIsThatOfAWholeCommit(t *testing.T) {
	const most = 2000
	st := openTestStore(t, most)
	kept := 0
	for round := range 2 {
		full := 0
		for i, err := range putAll(st, oneCommit(50)) {
			switch {
			case err == nil:
				kept++
			case errors.Is(err, errFull):
				full++
			default:
				t.Fatalf("round %d: companion %d = %v", round, i, err)
			}
		}
		if full == 0 || kept < 3 {
			t.Errorf("round %d: %d companions are kept and %d refused, want some of both", round, kept, full)
		}
	}
	got, _ := st.status()
	if got.Bytes > most {
		t.Errorf("the file has %d companions in %d bytes, want %d bytes at most", got.Companions, got.Bytes, most)
	}
	var bytes int64
	entries, err := st.first(1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		k, v, err := encodeEntry(&entries[i].c)
		if err != nil {
			t.Fatal(err)
		}
		bytes += entrySize(k, v)
	}
	if bytes != got.Bytes || len(entries) != got.Companions {
		t.Errorf("the file has %d companions in %d bytes, the status says %d in %d", len(entries), bytes, got.Companions, got.Bytes)
	}
}

// A commit is on disk before its callers return: nothing turns the syncs of the file off. That
// they reach the disk no test can see that does not cut the power.
func TestACommitToTheJournalIsSynced(t *testing.T) {
	st := openTestStore(t, 64<<20)
	if st.db.NoSync || st.db.NoGrowSync || st.db.NoFreelistSync {
		t.Errorf("NoSync %v, NoGrowSync %v, NoFreelistSync %v, want none of them", st.db.NoSync, st.db.NoGrowSync, st.db.NoFreelistSync)
	}
	// Every commit ends as a transaction of its own, so that it is synced by itself and not with the
	// next.
	before := lastTransaction(t, st)
	for i := range 3 {
		if errs := putAll(st, oneCommit(i + 1)[i:]); errs[0] != nil {
			t.Fatal(errs[0])
		}
		if now := lastTransaction(t, st); now <= before {
			t.Errorf("put %d has left the file at transaction %d, want one after %d", i, now, before)
		} else {
			before = now
		}
	}
}

func lastTransaction(t *testing.T, st *file) int {
	t.Helper()
	tx, err := st.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}()
	return tx.ID()
}

// The monitor queue takes all that a journal of many pages has, and the file goes on.
func TestAJournalOfManyPagesIsEmptiedAtOnce(t *testing.T) {
	st := openTestStore(t, 64<<20)
	const n = 5_000
	if err := errors.Join(putAll(st, oneCommit(n))...); err != nil {
		t.Fatal(err)
	}
	all, err := st.first(2 * n)
	if err != nil || len(all) != n {
		t.Fatalf("%d entries, %v; want %d", len(all), err, n)
	}
	if err := st.remove(all); err != nil {
		t.Fatal(err)
	}
	if left, err := st.first(n); err != nil || len(left) != 0 || st.holds.Bytes != 0 {
		t.Errorf("%d entries are left, %+v, %v; want none", len(left), st.holds, err)
	}
	if err := errors.Join(putAll(st, oneCommit(1))...); err != nil {
		t.Error(err)
	}
	if left, err := st.first(n); err != nil || len(left) != 1 {
		t.Errorf("%d entries are left, %v; want the new one", len(left), err)
	}
}

// putAll puts companions that were asked for one by one.
func putAll(f *file, companions []scheduler.Companion) []error {
	requests, errs := make([]*request, len(companions)), make([]error, len(companions))
	for i, c := range companions {
		requests[i] = &request{companions: []scheduler.Companion{c}}
	}
	f.put(requests)
	for i, r := range requests {
		errs[i] = r.err
	}
	return errs
}
