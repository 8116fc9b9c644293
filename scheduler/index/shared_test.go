// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

// lonely is an Exchange without others.
type lonely struct{ down bool }

func (x *lonely) Announce(context.Context, string, []string, []time.Duration) error { return nil }
func (x *lonely) Pass(context.Context, []string, [][]byte) error                    { return nil }
func (x *lonely) Passed(context.Context, string) ([][]byte, error)                  { return nil, nil }
func (x *lonely) Well() bool                                                        { return !x.down }

// inMemory is an Exchange within a test, which can be broken.
type inMemory struct {
	mu      sync.Mutex
	broken  bool
	inboxes map[string]string // by key
	letters map[string][][]byte
	asked   int
}

var errBroken = errors.New("broken")

func (x *inMemory) do(f func()) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked++
	if x.broken {
		return errBroken
	}
	f()
	return nil
}

func (x *inMemory) Announce(_ context.Context, inbox string, keys []string, _ []time.Duration) error {
	return x.do(func() {
		for _, k := range keys {
			x.inboxes[k] = inbox
		}
	})
}

func (x *inMemory) Pass(_ context.Context, keys []string, records [][]byte) error {
	return x.do(func() {
		for i, k := range keys {
			if inbox := x.inboxes[k]; inbox != "" {
				x.letters[inbox] = append(x.letters[inbox], records[i])
			}
		}
	})
}

func (x *inMemory) Passed(_ context.Context, inbox string) (records [][]byte, err error) {
	err = x.do(func() { records, x.letters[inbox] = x.letters[inbox], nil })
	return records, err
}

func (x *inMemory) Well() bool { return true }

// replicas are two processes that share, and what is between them.
type replicas struct {
	*testing.T
	a, b    *Shared
	flush   func()
	taken   func() int // how often a was notified of a removal
	failed  func() int
	inSlots bool // whether slots may stand for the messages
}

// replicate runs a test with two processes on fake time.
func replicate(t *testing.T, connect func() Exchange, flush func(), act func(*replicas)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		taken, failed := 0, 0
		count := func(n *int) func() int {
			return func() int {
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				return *n
			}
		}
		r := &replicas{T: t, flush: flush, taken: count(&taken), failed: count(&failed)}
		index := func() *Shared {
			x := NewShared(NewMemory(0), connect(), func(error) { mu.Lock(); defer mu.Unlock(); failed++ })
			ctx, stop := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() {
				x.Run(ctx, func(string, time.Time) bool { return r.inSlots }, func() { mu.Lock(); defer mu.Unlock(); taken++ })
			})
			t.Cleanup(func() { stop(); running.Wait() })
			return x
		}
		r.a, r.b = index(), index()
		act(r)
	})
}

// replicated runs a test with each Exchange.
func replicated(t *testing.T, act func(*replicas)) {
	t.Helper()
	t.Run("in memory", func(t *testing.T) {
		x := &inMemory{inboxes: map[string]string{}, letters: map[string][][]byte{}}
		replicate(t, func() Exchange { return x }, func() { _ = x.do(func() { clear(x.inboxes); clear(x.letters) }) }, act)
	})
	t.Run("Redis in memory", func(t *testing.T) {
		m := redistest.InMemory(t)
		replicate(t, func() Exchange { return connect(t, m.Addr()) }, m.FlushAll, act)
	})
	t.Run("redis-server", func(t *testing.T) {
		r := redistest.Start(t)
		replicate(t, func() Exchange { return connect(t, r.Addr) }, func() { r.Must("FLUSHALL") }, act)
	})
}

func connect(t testing.TB, addr string) Exchange {
	t.Helper()
	a, err := redisstore.ParseAddress("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := redisstore.Open(redisstore.Config{Address: a, Fleet: []string{"contoso"}, Slack: 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // there is nothing to lose
	return s.Settlements()
}

// sendNow puts n references of one companion into a, for messages that are stamped now.
// They are returned as others know them.
func (r *replicas) sendNow(n int) (all []Delivered) {
	var refs []Reference
	now := time.Now().Truncate(time.Millisecond)
	for i := range n {
		refs = append(refs, sent(fmt.Sprint("m-", i), now))
		d := stamped(refs[i].MessageID, now)
		d.Entity, d.Key = "orders", sharedKeyOf("orders", refs[i].MessageID, "")
		all = append(all, d)
	}
	r.a.Put("orders", refs)
	r.a.Confirm("orders", refs, now.Add(time.Millisecond))
	carry(r.a, 1, refs...)
	return all
}

func TestMessagesSettledElsewhereAreTakenOff(t *testing.T) {
	replicated(t, func(r *replicas) {
		const n = few + 20 // more than go together
		for _, d := range r.sendNow(n) {
			if r.b.Take(d) {
				t.Fatal("taken off where it was not sent from")
			}
		}
		time.Sleep(5 * time.Second)
		if r.taken() == 0 || len(needlessIDs(r.a)) != 1 {
			t.Errorf("notified %d times; want the companion to be needless", r.taken())
		}
		if n := r.failed(); n != 0 {
			t.Errorf("%d failures", n)
		}
	})
}

func TestForgottenSharedCompanionsBecomeDue(t *testing.T) {
	replicated(t, func(r *replicas) {
		first := r.sendNow(2)
		time.Sleep(2 * time.Second)
		r.flush()
		r.b.Take(first[0])
		r.b.Take(first[1])
		time.Sleep(5 * time.Second)
		if ids := needlessIDs(r.a); len(ids) != 0 {
			t.Errorf("needless %v, want none: nobody could know", ids)
		}
		if n := r.failed(); n != 0 {
			t.Errorf("%d failures, want none: it was only empty", n)
		}
	})
}

// After an outage that was longer than anything that was announced, sends are announced again.
func TestSharingComesBackAfterAnOutage(t *testing.T) {
	r := redistest.Start(t)
	replicate(t, func() Exchange { return connect(t, r.Addr) }, nil, func(s *replicas) {
		s.sendNow(1)
		r.Kill()
		time.Sleep(5 * time.Minute)
		if s.failed() == 0 || s.a.exchange.Well() {
			t.Error("nobody has noticed the outage")
		}
		r.Restart()
		time.Sleep(time.Minute)
		for _, d := range s.sendNow(1) {
			s.b.Take(d)
		}
		time.Sleep(5 * time.Second)
		if s.taken() == 0 {
			t.Error("what is settled elsewhere is not taken off after the outage")
		}
	})
}

func TestSettlementsOfMessagesInSlotsAreNotTaken(t *testing.T) {
	replicated(t, func(r *replicas) {
		r.inSlots = true
		for _, d := range r.sendNow(1) {
			r.b.Take(d)
		}
		time.Sleep(5 * time.Second)
		if ids := needlessIDs(r.a); len(ids) != 0 {
			t.Errorf("needless %v, want none", ids)
		}
	})
}

// What nobody else could know anything of is not shared, and an exchange that is broken keeps
// nothing.
func TestSharingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &inMemory{inboxes: map[string]string{}, letters: map[string][][]byte{}}
		failures := 0
		index := NewShared(NewMemory(0), x, func(error) { failures++ })
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { index.Run(ctx, func(string, time.Time) bool { return false }, func() {}) })
		defer running.Wait()
		defer stop()
		put := func(n byte, refs ...Reference) {
			index.Put("orders", refs)
			index.Confirm("orders", refs, time.Now())
			carry(index, n, refs...)
		}
		put(1, sent("settled here", time.Now()))
		index.Take(stamped("settled here", time.Now()))
		soon := sent("due soon", time.Now())
		soon.Deadline, soon.Within = time.Now().Add(shareLead/2), shareLead/2
		put(2, soon)
		time.Sleep(time.Hour)
		if x.asked != 0 {
			t.Errorf("asked %d times about nothing", x.asked)
		}
		x.broken = true
		for i := range 2 * sharedMost {
			index.Carried(ID{9, byte(i), byte(i >> 8), byte(i >> 16)}, "orders", time.Time{}, []Reference{sent("m", time.Now())})
			index.Take(stamped(fmt.Sprint(i), time.Now()))
		}
		index.mu.Lock()
		if len(index.written) != sharedMost || len(index.foreign) != sharedMost {
			t.Errorf("%d and %d wait, want %d", len(index.written), len(index.foreign), sharedMost)
		}
		index.mu.Unlock()
		time.Sleep(5 * time.Second)
		index.mu.Lock()
		if len(index.written) != 0 || len(index.foreign) != 0 || index.waiting != 0 {
			t.Errorf("%d and %d wait for an exchange that is broken", len(index.written), len(index.foreign))
		}
		index.mu.Unlock()
		synctest.Wait()
		if failures == 0 {
			t.Error("no error was reported")
		}
	})
}

func TestRecordsOfOthersAreChecked(t *testing.T) {
	d := stamped("m", noon)
	d.Entity = "orders"
	got, ok := parseRecord(d.record())
	if !ok || got.Key != d.Key || got.Entity != d.Entity || !got.Enqueued.Equal(d.Enqueued) || !got.Deadline.Equal(d.Deadline) {
		t.Errorf("%v, %v, want %v", got, ok, d)
	}
	for n := range recordSize {
		if _, ok := parseRecord(make([]byte, n)); ok {
			t.Errorf("%d bytes are taken for a record", n)
		}
	}
}

// deaf is an Exchange without others that takes no announcements.
type deaf struct{ lonely }

func (x *deaf) Announce(context.Context, string, []string, []time.Duration) error { return errBroken }

func TestAnAnnouncementThatFailsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		x := NewShared(NewMemory(0), &deaf{}, func(err error) { reported = append(reported, err) })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			x.Run(ctx, func(string, time.Time) bool { return false }, func() {})
		}()
		refs := []Reference{sent("m", time.Now().Truncate(time.Millisecond))}
		x.Put("orders", refs)
		x.Confirm("orders", refs, time.Now())
		carry(x, 1, refs...)
		time.Sleep(5 * time.Second)
		stop()
		<-ended
		if len(reported) != 1 || !errors.Is(reported[0], errBroken) {
			t.Errorf("reported %v, want once why it could not be announced", reported)
		}
	})
}
