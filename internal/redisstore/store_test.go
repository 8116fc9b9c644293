// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
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
		return s.View().Report(t.Context(), Process{}, missedOf("orders", 1))
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
		end()
		back()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(news) == 0 || news[0] {
		t.Errorf("news %v, want that it is unavailable", news)
	}
}

func TestWhoGivesUpSaysNothingOfRedis(t *testing.T) {
	r := redistest.Start(t)
	s := open(t, "redis://"+r.Addr)
	r.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.View().Read(ctx); !errors.Is(err, context.DeadlineExceeded) || s.View().c.down.Load() {
		t.Errorf("Read = %v, down %v, want the caller's own error and no rest", err, s.View().c.down.Load())
	}
	r.Thaw()
}
