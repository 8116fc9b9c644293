// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/testseed"
)

// A moody namespace answers, fails, is slow, and changes its entities, all by chance. It keeps a
// record of how each entity was made, and when.
type moody struct {
	rnd *rand.Rand // under mu

	mu      sync.Mutex
	history map[string][]version
	mood    error // nil: it answers
	since   time.Time
	busy    map[string]int
	most    int
}

type version struct {
	at   time.Time
	info Info // Kind 0: it does not exist
}

func (m *moody) Read(ctx context.Context, name string) (Info, error) {
	m.mu.Lock()
	m.busy[name]++
	all := 0
	for _, n := range m.busy {
		all += n
	}
	m.most = max(m.most, all)
	if m.busy[name] > 1 {
		m.most = 1000 // two reads of one name are as bad as too many
	}
	takes := time.Duration(m.rnd.Int64N(int64(2 * time.Second)))
	m.mu.Unlock()
	sleepUntil(ctx, time.Now().Add(takes/2))
	m.mu.Lock()
	err, was := m.mood, m.now(name)
	m.mu.Unlock()
	sleepUntil(ctx, time.Now().Add(takes/2))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy[name]--
	switch {
	case ctx.Err() != nil:
		return Info{}, ctx.Err()
	case err != nil:
		return Info{}, err
	case was.Kind == 0:
		return Info{}, ErrNotFound
	}
	return was, nil
}

// now is how the entity is made; mu is held.
func (m *moody) now(name string) Info {
	h := m.history[name]
	if len(h) == 0 {
		return Info{}
	}
	return h[len(h)-1].info
}

// known reports whether the entity was so at some time from the given one on.
func (m *moody) known(name string, info Info, from time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.history[name]
	for i := range h {
		if h[i].info.DefaultMessageTimeToLive == info.DefaultMessageTimeToLive && (i+1 == len(h) || h[i+1].at.After(from)) {
			return true
		}
	}
	return len(h) == 0 && info.Kind == 0
}

// calm reports whether it has answered for so long.
func (m *moody) calm(long time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mood == nil && time.Since(m.since) > long
}

// No answer is older than is promised while the namespace answers, and none is made up, whatever
// the namespace does. No caller waits longer than the timeout, and the namespace never gets too
// many requests at once.
func TestWhateverTheNamespaceDoes(t *testing.T) {
	seed := testseed.Of(t)
	for round := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			m := &moody{rnd: rand.New(rand.NewPCG(seed, round)), history: map[string][]version{}, busy: map[string]int{}, since: time.Now()}
			store := New(Config{Source: m})
			defer store.Close()
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { m.live(ctx) })
			for i := range 4 {
				rnd := rand.New(rand.NewPCG(seed, 100*round+uint64(i)+1))
				all.Go(func() { use(ctx, t, store, m, rnd) })
			}
			time.Sleep(6 * time.Hour)
			stop()
			all.Wait()
			m.mu.Lock() // what the store has asked for behind somebody's back may still be under way
			defer m.mu.Unlock()
			if m.most > readers {
				t.Errorf("%d reads at once (1000: of one name), want at most %d", m.most, readers)
			}
		})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

const someNames = 12

// live changes entities and moods until ctx ends.
func (m *moody) live(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		m.mu.Lock()
		name := fmt.Sprint("q", m.rnd.IntN(someNames))
		info := Info{Kind: Queue, DefaultMessageTimeToLive: time.Duration(n + 1)}
		if m.rnd.IntN(4) == 0 {
			info = Info{}
		}
		m.history[name] = append(m.history[name], version{time.Now(), info})
		if m.rnd.IntN(3) == 0 {
			was := m.mood
			m.mood = []error{nil, nil, errDown, busy(10 * time.Second)}[m.rnd.IntN(4)]
			if (was == nil) != (m.mood == nil) {
				m.since = time.Now()
			}
		}
		pause := time.Duration(m.rnd.Int64N(int64(3 * time.Minute)))
		m.mu.Unlock()
		sleepUntil(ctx, time.Now().Add(pause))
	}
}

// use looks entities up until ctx ends, and judges the answers.
func use(ctx context.Context, t *testing.T, store *Store, m *moody, rnd *rand.Rand) {
	// While the namespace is away, and for as long as it takes to be asked again, answers may be of
	// any age.
	const settled = 3*time.Minute + 30*time.Second
	for ctx.Err() == nil {
		name := fmt.Sprint("q", rnd.IntN(someNames))
		from, calm := time.Now().Add(-2*time.Minute-5*time.Second), m.calm(settled)
		began := time.Now()
		since := began
		info, err := Info{}, error(nil)
		switch rnd.IntN(3) {
		case 0:
			info, err = store.Cached(name)
		case 1:
			info, err = store.Lookup(ctx, name)
		case 2:
			since = began.Add(-time.Duration(rnd.Int64N(int64(time.Minute))))
			info, err = store.LookupSince(ctx, name, since)
			from = since
		}
		calm = calm && m.calm(settled)
		var gone *UnreachableError
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnknown) && !errors.As(err, &gone):
			t.Errorf("%s: %v, want an error that is documented", name, err)
		case errors.As(err, &gone) && calm:
			t.Errorf("%s: %v, though the namespace has answered for %v", name, err, settled)
		case err == nil && !m.known(name, info, time.Time{}):
			t.Errorf("%s: %+v, which it never was", name, info)
		case err == nil && calm && !m.known(name, info, from):
			t.Errorf("%s: %+v, which it has not been since %v", name, info, time.Since(from))
		case errors.Is(err, ErrNotFound) && calm && !m.missing(name, began.Add(-5*time.Second)):
			t.Errorf("%s: %v, though it exists", name, err)
		}
		if took := time.Since(began); took > 18*time.Second {
			t.Errorf("%s: an answer after %v, want the timeout to end it by then", name, took)
		}
		sleepUntil(ctx, time.Now().Add(time.Duration(rnd.Int64N(int64(90*time.Second)))))
	}
}

// missing reports whether the entity did not exist at some time from the given one on.
func (m *moody) missing(name string, from time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.history[name]
	for i := range h {
		if h[i].info.Kind == 0 && (i+1 == len(h) || h[i+1].at.After(from)) {
			return true
		}
	}
	return len(h) == 0 || h[0].at.After(from)
}
