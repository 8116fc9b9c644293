// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeSource is a Source that says what the test wants it to.
type fakeSource struct {
	mu    sync.Mutex
	takes time.Duration // of one read
	says  func(name string) (Info, error)
	reads map[string]int
	now   int // reads under way
	most  int // of them at once
	twice bool
	busy  map[string]bool
}

var errDown = errors.New("connection refused")

func ttl(d time.Duration) Info { return Info{Kind: Queue, DefaultMessageTimeToLive: d} }

func (s *fakeSource) say(f func(name string) (Info, error)) {
	s.mu.Lock()
	s.says = f
	s.mu.Unlock()
}

func (s *fakeSource) sayOne(info Info, err error) {
	s.say(func(string) (Info, error) { return info, err })
}

func (s *fakeSource) Read(ctx context.Context, name string) (Info, error) {
	s.mu.Lock()
	s.reads[name]++
	s.now++
	s.most = max(s.most, s.now)
	s.twice = s.twice || s.busy[name]
	s.busy[name] = true
	takes := s.takes
	s.mu.Unlock()
	sleepUntil(ctx, time.Now().Add(takes))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	delete(s.busy, name)
	if ctx.Err() != nil {
		return Info{}, ctx.Err()
	}
	return s.says(name)
}

func (s *fakeSource) read(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[name]
}

func (s *fakeSource) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reads {
		n += r
	}
	return n
}

type scene struct {
	*testing.T
	source *fakeSource
	store  *Store
}

func setup(t *testing.T, change ...func(*Config)) *scene {
	t.Helper()
	s := &fakeSource{reads: map[string]int{}, busy: map[string]bool{}}
	s.sayOne(ttl(time.Minute), nil)
	cfg := Config{Source: s}
	for _, f := range change {
		f(&cfg)
	}
	sc := &scene{T: t, source: s, store: New(cfg)}
	t.Cleanup(sc.store.Close)
	return sc
}

// wantLookup fails the test unless Lookup says so and takes so long.
func (sc *scene) wantLookup(name string, want Info, wantErr error, took time.Duration) {
	sc.Helper()
	began := time.Now()
	info, err := sc.store.Lookup(sc.Context(), name)
	sc.judge("Lookup", info, err, want, wantErr)
	if d := time.Since(began); d < took || d > took+took/4 {
		sc.Errorf("Lookup took %v, want %v", d, took)
	}
}

func (sc *scene) wantCached(name string, want Info, wantErr error) {
	sc.Helper()
	info, err := sc.store.Cached(name)
	sc.judge("Cached", info, err, want, wantErr)
}

func (sc *scene) judge(what string, info Info, err error, want Info, wantErr error) {
	sc.Helper()
	if info.DefaultMessageTimeToLive != want.DefaultMessageTimeToLive || info.Kind != want.Kind || !errors.Is(err, wantErr) || err != nil && wantErr == nil {
		sc.Errorf("%s = %+v, %v, want %+v, %v", what, info, err, want, wantErr)
	}
}

func TestAnAnswerIsRememberedAndAskedForAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.takes = 20 * time.Millisecond
		sc.wantCached("orders", Info{}, ErrUnknown)
		sc.wantLookup("orders", ttl(time.Minute), nil, 20*time.Millisecond)
		sc.wantLookup("ORDERS", ttl(time.Minute), nil, 0)
		sc.wantCached("Orders", ttl(time.Minute), nil)
		time.Sleep(50 * time.Second)
		sc.wantLookup("orders", ttl(time.Minute), nil, 0)
		if n := sc.source.total(); n != 1 {
			t.Fatalf("%d reads while the answer is fresh, want 1", n)
		}
		// It has changed. This caller is the last to get the old description.
		sc.source.sayOne(ttl(time.Hour), nil)
		time.Sleep(20 * time.Second)
		sc.wantCached("orders", ttl(time.Minute), nil)
		sc.wantCached("orders", ttl(time.Minute), nil)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		sc.wantCached("orders", ttl(time.Hour), nil)
		if n := sc.source.total(); n != 2 {
			t.Errorf("%d reads, want 2", n)
		}
	})
}

// An answer that nobody asked for in a while is too old to be used.
func TestAnOldAnswerIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.wantLookup("orders", ttl(time.Minute), nil, 0)
		sc.source.sayOne(ttl(time.Hour), nil)
		sc.source.takes = time.Second
		time.Sleep(2 * time.Minute)
		sc.wantCached("orders", Info{}, ErrUnknown)
		sc.wantLookup("orders", ttl(time.Hour), nil, time.Second)
		// Unless there is no other.
		sc.source.sayOne(Info{}, errDown)
		time.Sleep(2 * time.Minute)
		if info, err := sc.store.Lookup(t.Context(), "orders"); err != nil || info.DefaultMessageTimeToLive != time.Hour {
			t.Errorf("Lookup while the source is down = %+v, %v, want the last answer", info, err)
		}
		sc.wantCached("orders", ttl(time.Hour), nil)
	})
}

func TestAnAnswerIsAskedForAnewForWhoNeedsANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.takes = time.Second
		begin := time.Now()
		since := func(at time.Time, want Info, took time.Duration) {
			t.Helper()
			began := time.Now()
			info, err := sc.store.LookupSince(t.Context(), "orders", at)
			sc.judge("LookupSince", info, err, want, nil)
			if d := time.Since(began); d != took {
				t.Errorf("LookupSince took %v, want %v", d, took)
			}
		}
		since(begin.Add(time.Hour), ttl(time.Minute), time.Second) // what is to come is now
		sc.source.sayOne(ttl(time.Hour), nil)
		since(begin, ttl(time.Minute), 0)
		since(begin.Add(1), ttl(time.Hour), time.Second)
		// One that is under way was asked too early.
		time.Sleep(10 * time.Second)
		go sc.wantLookup("orders", ttl(time.Hour), nil, 0)
		go since(time.Now(), ttl(time.Hour), time.Second)
		time.Sleep(500 * time.Millisecond)
		since(time.Now(), ttl(time.Hour), 1500*time.Millisecond)
		if n := sc.source.total(); n != 4 {
			t.Errorf("%d reads, want 4", n)
		}
		// Nobody waits twice for a source that is down.
		sc.source.takes = 0
		sc.source.sayOne(Info{}, errDown)
		time.Sleep(time.Second)
		if info, err := sc.store.LookupSince(t.Context(), "orders", time.Now()); err != nil || info.DefaultMessageTimeToLive != time.Hour {
			t.Errorf("LookupSince = %+v, %v, want the last answer", info, err)
		}
		since(time.Now(), ttl(time.Hour), 0)
	})
}

func TestOneReadForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.takes = time.Second
		var all sync.WaitGroup
		for i := range 200 {
			name := []string{"orders", "Orders", "ORDERS", "oRDERS", "orderS", "oRderS"}[i%6]
			all.Go(func() { sc.wantLookup(name, ttl(time.Minute), nil, time.Second) })
		}
		all.Wait()
		if n := sc.source.total(); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
	})
}

func TestALateAnswerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.takes = 12 * time.Second
		sc.wantLookup("orders", ttl(time.Minute), nil, 12*time.Second)
		// The wait is bounded, and ends with the caller's context.
		sc.source.takes = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := sc.store.Lookup(ctx, "bills"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lookup = %v, want its context's error", err)
		}
		sc.wantLookup("bills", Info{}, context.DeadlineExceeded, 14*time.Second)
		// From then on nobody waits.
		sc.wantLookup("bills", Info{}, context.DeadlineExceeded, 0)
		sc.wantCached("bills", Info{}, context.DeadlineExceeded)
	})
}

func TestAMissingEntityIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.sayOne(Info{}, ErrNotFound)
		sc.wantLookup("orders", Info{}, ErrNotFound, 0)
		for range 100 {
			sc.wantCached("orders", Info{}, ErrUnknown)
			if _, err := sc.store.Lookup(t.Context(), "orders"); !errors.Is(err, ErrNotFound) {
				t.Fatalf("Lookup = %v, want ErrNotFound", err)
			}
		}
		if d := time.Since(sc.begin()); d < 3*time.Minute {
			t.Errorf("100 looks for what does not exist took %v, want them to be spread over minutes", d)
		}
		// It is made, used, and deleted.
		sc.source.sayOne(ttl(time.Minute), nil)
		if _, err := sc.store.Lookup(t.Context(), "orders"); err != nil {
			t.Errorf("Lookup of what has been made = %v", err)
		}
		sc.source.sayOne(Info{}, ErrNotFound)
		time.Sleep(70 * time.Second)
		sc.wantCached("orders", ttl(time.Minute), nil)
		synctest.Wait()
		sc.wantCached("orders", Info{}, ErrUnknown)
		sc.source.sayOne(ttl(time.Hour), nil)
		sc.wantLookup("orders", ttl(time.Hour), nil, 250*time.Millisecond)
	})
}

// begin is when the bubble began.
func (sc *scene) begin() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(c *Config) { c.MaxNames = 100 })
		sc.source.takes = 10 * time.Millisecond
		sc.wantLookup("orders", ttl(time.Minute), nil, 10*time.Millisecond)
		var all sync.WaitGroup
		for i := range 5000 {
			if i%50 == 0 {
				all.Wait()
				time.Sleep(time.Second)
				sc.wantLookup("orders", ttl(time.Minute), nil, 0) // in use all the time
			}
			all.Go(func() {
				_, err := sc.store.Lookup(t.Context(), fmt.Sprintf("Name %d", i))
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(*sc.store.table.names.Load()); n > 100*maxSpellings {
			t.Errorf("%d spellings are kept, want at most %d", n, 100*maxSpellings)
		}
		if n := sc.source.read("orders"); n > 2 {
			t.Errorf("what is in use was read %d times in %v, want 2", n, time.Since(sc.begin()))
		}
		if sc.source.most > readers || sc.source.twice {
			t.Errorf("%d reads at once, two of one name: %v, want %d and none", sc.source.most, sc.source.twice, readers)
		}
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.source.takes = time.Hour
		failed := make(chan error, 1)
		go func() {
			_, err := sc.store.Lookup(t.Context(), "orders")
			failed <- err
		}()
		synctest.Wait()
		sc.store.Close()
		if err := <-failed; err == nil {
			t.Error("Lookup succeeds after Close")
		}
		if _, err := sc.store.Lookup(t.Context(), "bills"); !errors.Is(err, errClosed) {
			t.Errorf("Lookup after Close = %v, want %v", err, errClosed)
		}
	})
}

func TestCachedMakesNothing(t *testing.T) {
	sc := setup(t)
	for _, name := range []string{"orders", "Orders"} {
		if _, err := sc.store.Lookup(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := sc.store.Cached(name); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("Cached(%q) makes %v allocations, want 0", name, n)
		}
	}
}

func BenchmarkCached(b *testing.B) {
	s := &fakeSource{reads: map[string]int{}, busy: map[string]bool{}}
	s.sayOne(ttl(time.Minute), nil)
	store := New(Config{Source: s})
	defer store.Close()
	for i := range 1000 {
		if _, err := store.Lookup(b.Context(), strings.Repeat("x", i%20)+fmt.Sprint(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := store.Cached("xxxxx5"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
