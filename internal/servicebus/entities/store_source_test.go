// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSinceWhenASourceIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.sayOne(Info{}, errDown)
		for range 100 {
			_, err := sc.store.Lookup(t.Context(), "orders")
			var gone *UnreachableError
			if !errors.As(err, &gone) || !errors.Is(err, errDown) || time.Since(gone.Since) > time.Since(sc.begin()) || gone.Since.Sub(sc.begin()) > 16*time.Second {
				t.Fatalf("Lookup = %v, want an UnreachableError from about the beginning on", err)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestNoRightIsRememberedLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.sayOne(Info{}, fmt.Errorf("%w: claims required", ErrNoRight))
		sc.wantLookup("orders", Info{}, ErrNoRight, 0)
		for range 50 * 60 {
			time.Sleep(time.Second)
			sc.wantCached("orders", Info{}, ErrNoRight)
			sc.wantLookup("orders", Info{}, ErrNoRight, 0)
		}
		if n := sc.source.total(); n != 1 {
			t.Errorf("%d reads in 50 minutes, want 1", n)
		}
		// The right may be given later.
		sc.source.sayOne(ttl(time.Minute), nil)
		time.Sleep(20 * time.Minute)
		sc.wantLookup("orders", ttl(time.Minute), nil, 0)
		sc.wantCached("orders", ttl(time.Minute), nil)
		// And taken away, which does not make us forget.
		sc.source.sayOne(Info{}, ErrNoRight)
		time.Sleep(3 * time.Minute)
		sc.wantLookup("orders", ttl(time.Minute), nil, 0)
		sc.wantCached("orders", ttl(time.Minute), nil)
	})
}

func TestASourceThatIsDownIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.sayOne(Info{}, errDown)
		// It comes back while the first one waits.
		time.AfterFunc(3*time.Second, func() { sc.source.sayOne(ttl(time.Minute), nil) })
		if info, err := sc.store.Lookup(t.Context(), "orders"); err != nil || info.DefaultMessageTimeToLive != time.Minute {
			t.Errorf("Lookup = %+v, %v, want what it says when it is back", info, err)
		}
		if n := sc.source.read("orders"); n < 5 || n > 10 {
			t.Errorf("%d reads in 3 s, want about two a second", n)
		}
		// It stays away for an hour. Known answers stay known, and nobody waits long.
		down := time.Now()
		sc.source.sayOne(Info{}, errDown)
		before := sc.source.total()
		for range 3600 {
			time.Sleep(time.Second)
			sc.wantCached("orders", ttl(time.Minute), nil)
			began := time.Now()
			if _, err := sc.store.Lookup(t.Context(), fmt.Sprint("bills", time.Since(down) > time.Minute)); !errors.Is(err, errDown) {
				t.Fatalf("Lookup of what was never known = %v, want %v", err, errDown)
			}
			if d := time.Since(began); d > 16*time.Second || d > 0 && time.Since(down) > 20*time.Second {
				t.Fatalf("Lookup took %v, %v after the source went down; want no caller to wait longer than the timeout", d, time.Since(down))
			}
		}
		if n := sc.source.total() - before; n < 50 || n > 200 {
			t.Errorf("%d reads in an hour, want one or two a minute", n)
		}
		sc.source.sayOne(ttl(time.Hour), nil)
		for range 150 {
			time.Sleep(time.Second)
			_, _ = sc.store.Cached("orders") // what it says comes below
		}
		sc.wantCached("orders", ttl(time.Hour), nil)
		sc.wantLookup("billsfalse", ttl(time.Hour), nil, 0)
	})
}

type busy time.Duration

func (b busy) Error() string { return "429" }

func (b busy) RetryAfter() time.Duration { return time.Duration(b) }

func TestASourceThatIsBusyIsLeftAloneForAllNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		const names = 1000
		var all sync.WaitGroup
		for i := range names {
			all.Go(func() { sc.wantLookup(fmt.Sprint(i), ttl(time.Minute), nil, 0) })
		}
		all.Wait()
		sc.source.sayOne(Info{}, busy(30*time.Second))
		before := sc.source.total()
		time.Sleep(70 * time.Second)
		for range 29 {
			for i := range names {
				sc.wantCached(fmt.Sprint(i), ttl(time.Minute), nil)
			}
			time.Sleep(time.Second)
		}
		if n := sc.source.total() - before; n > 2*readers {
			t.Errorf("%d reads within the 30 s in which it wants to be left alone, want no more than were under way", n)
		}
		sc.source.sayOne(ttl(time.Hour), nil)
		for range 60 {
			for i := range names {
				_, _ = sc.store.Cached(fmt.Sprint(i)) // what it says comes below
			}
			time.Sleep(time.Second)
		}
		for i := range names {
			sc.wantCached(fmt.Sprint(i), ttl(time.Hour), nil)
		}
	})
}

func TestASourceWithVersionsIsReadWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := uint64(7)
		sc := setup(t, func(c *Config) { c.Version = func() uint64 { return version } })
		sc.wantCached("orders", ttl(time.Minute), nil)
		sc.wantLookup("Orders", ttl(time.Minute), nil, 0)
		if n := sc.source.total(); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
		sc.source.sayOne(ttl(time.Hour), nil)
		version++
		sc.wantCached("orders", ttl(time.Hour), nil)
		sc.source.sayOne(Info{}, ErrNotFound)
		sc.wantCached("orders", ttl(time.Hour), nil)
		version++
		sc.wantCached("orders", Info{}, ErrNotFound)
		sc.wantLookup("orders", Info{}, ErrNotFound, 0)
	})
}

func TestEachReadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		sc := setup(t, func(c *Config) {
			c.Heard = func(name string, info Info, err error) {
				heard = append(heard, fmt.Sprint(name, " ", info.DefaultMessageTimeToLive, " ", err))
			}
		})
		sc.wantLookup("Orders", ttl(time.Minute), nil, 0)
		sc.source.sayOne(Info{}, errDown)
		time.Sleep(time.Minute + 10*time.Second)
		sc.wantLookup("orders", ttl(time.Minute), nil, 0)
		synctest.Wait()
		sc.source.sayOne(Info{}, ErrNotFound)
		_, _ = sc.store.Lookup(t.Context(), "bills") // what it says is heard
		want := []string{"Orders 1m0s <nil>", "Orders 1m0s <nil>", "bills 0s " + ErrNotFound.Error()}
		if !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
	})
}
