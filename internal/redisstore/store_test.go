// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/redistest"
)

// slack lets a busy machine be slow: no test is about how fast Redis is.
const slack = 20

func open(t testing.TB, address string) *Store {
	t.Helper()
	a, err := ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Address: a, Fleet: []string{"contoso", t.Name()}, Slack: slack})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it may have no server any more
	return s
}

// everywhere runs a test against a server in memory and against redis-server.
func everywhere(t *testing.T, act func(t *testing.T, connect func() *Store)) {
	t.Helper()
	t.Run("in memory", func(t *testing.T) {
		m := redistest.InMemory(t)
		act(t, func() *Store { return open(t, "redis://"+m.Addr()) })
	})
	t.Run("redis-server", func(t *testing.T) {
		t.Parallel()
		r := redistest.Start(t)
		act(t, func() *Store { return open(t, "redis://"+r.Addr) })
	})
}

func TestRecordsGoToWhoAnnouncedTheirKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, connect func() *Store) {
		ctx := t.Context()
		a, b := connect().Settlements(), connect().Settlements()
		must(t, a.Announce(ctx, "a", []string{"one", "two"}, []time.Duration{time.Minute, time.Minute}))
		must(t, b.Announce(ctx, "b", []string{"three"}, []time.Duration{time.Minute}))
		must(t, b.Pass(ctx, []string{"one", "three", "nobody's", "two"}, [][]byte{{1}, {3}, {9}, {2}}))
		passed := func(m *Settlements, inbox string, want ...byte) {
			t.Helper()
			records, err := m.Passed(ctx, inbox)
			var got []byte
			for _, r := range records {
				got = append(got, r...)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("passed to %s: %v, %v, want %v", inbox, got, err, want)
			}
		}
		passed(a, "a", 1, 2)
		passed(a, "a")
		passed(b, "b", 3)
	})
}

func TestRecordsOfSettlementsAreBounded(t *testing.T) {
	ctx, m := t.Context(), open(t, "redis://"+redistest.Start(t).Addr).Settlements()
	const n = inboxMost + 2500
	keys, lives, records := make([]string, n), make([]time.Duration, n), make([][]byte, n)
	for i := range n {
		keys[i], lives[i], records[i] = fmt.Sprint(i), time.Minute, []byte(fmt.Sprint(i))
	}
	must(t, m.Announce(ctx, "a", keys, lives))
	must(t, m.Pass(ctx, keys, records))
	got := 0
	for {
		part, err := m.Passed(ctx, "a")
		must(t, err)
		if len(part) == 0 {
			break
		}
		if got == 0 && string(part[0]) != fmt.Sprint(n-inboxMost) {
			t.Errorf("the first record is %s, want the oldest ones to be gone", part[0])
		}
		got += len(part)
	}
	if got != inboxMost {
		t.Errorf("%d records, want %d", got, inboxMost)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A Redis that is dead, frozen or read-only is left alone, and is asked again.
func TestWhatFailsIsLeftAloneForAWhile(t *testing.T) {
	r := redistest.Start(t)
	a, err := ParseAddress("redis://" + r.Addr)
	must(t, err)
	var mu sync.Mutex
	var news []bool
	s, err := Open(Config{Address: a, Fleet: []string{"f"}, Slack: 2, Asked: func(_ string, err error, isNews bool) {
		mu.Lock()
		defer mu.Unlock()
		if isNews {
			news = append(news, err == nil)
		}
	}})
	must(t, err)
	defer func() { _ = s.Close() }()
	ask := func() error {
		return s.Settlements().Announce(t.Context(), "a", []string{"b"}, []time.Duration{time.Minute})
	}
	back := func() {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ask() != nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("Redis is back and is not asked")
			}
		}
	}
	back() // it may have been slow at first
	for name, fail := range map[string]func() (end func()){
		"frozen": func() func() { r.Freeze(); return r.Thaw },
		"killed": func() func() { r.Kill(); return r.Restart },
		"a replica": func() func() {
			r.Must("REPLICAOF", "127.0.0.1", "1")
			return func() { r.Must("REPLICAOF", "NO", "ONE") }
		},
	} {
		end := fail()
		if err := ask(); err == nil || errors.Is(err, ErrDown) {
			t.Errorf("%s: %v, want it to fail", name, err)
		}
		if err := ask(); !errors.Is(err, ErrDown) {
			t.Errorf("%s: asked again at once: %v, want ErrDown", name, err)
		}
		if s.Well() {
			t.Errorf("%s: Well = true", name)
		}
		end()
		back()
		if !s.Well() {
			t.Errorf("%s: Well = false when it is back", name)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if n := len(news); n < 6 || n%2 != 0 || news[0] || !news[1] {
		t.Errorf("news %v, want it to go and come three times", news)
	}
}

func TestWhoGivesUpSaysNothingOfRedis(t *testing.T) {
	r := redistest.Start(t)
	s := open(t, "redis://"+r.Addr)
	r.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Settlements().Passed(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || !s.Well() {
		t.Errorf("Passed = %v, well %v, want the caller's own error and no rest", err, s.Well())
	}
	r.Thaw()
}
