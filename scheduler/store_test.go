// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"overdue/internal/operations"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/index"
)

// heldItems is a store within a test.
type heldItems struct {
	mu    sync.Mutex
	full  error
	items []redisstore.Item
	asked []string // to be withdrawn
}

func (x *heldItems) Put(_ context.Context, items []redisstore.Item) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.full == nil {
		x.items = append(x.items, items...)
	}
	return x.full
}

func (x *heldItems) Withdraw(_ context.Context, ids []string) (withdrawn []string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, ids...)
	x.items = slices.DeleteFunc(x.items, func(i redisstore.Item) bool {
		if slices.Contains(ids, i.ID) {
			withdrawn = append(withdrawn, i.ID)
			return true
		}
		return false
	})
	return withdrawn, nil
}

func (x *heldItems) has() []redisstore.Item {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.items)
}

// setupStore is setup with a store in the place of the monitor queue.
func setupStore(t *testing.T, act func(t *testing.T, x *heldItems, s *scheduler.Scheduler, r *prometheus.Registry)) {
	t.Helper()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, _ *scheduler.Scheduler) {
		links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: ns.Dial, Tokens: link.SAS("RootManageSharedAccessKey", "c2VjcmV0")})
		defer func() { _ = links.Close() }() // it does not matter here
		x, r := &heldItems{}, prometheus.NewRegistry()
		s, err := scheduler.New(scheduler.Config{
			MonitorQueue: monitorQueue, Store: x, Links: links, Deadlines: operations.NewDeadlines(r),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(context.Background()) }() // nor this
		act(t, x, s, r)
		if got := companions(t, ns); len(got) != 0 {
			t.Errorf("%d messages are on the monitor queue, want none with a store", len(got))
		}
	})
}

func TestAStoreKeepsCompanionsAndNotesInThePlaceOfTheMonitorQueue(t *testing.T) {
	setupStore(t, func(t *testing.T, x *heldItems, s *scheduler.Scheduler, _ *prometheus.Registry) {
		due := time.Now().Add(time.Minute)
		note := scheduler.Note{ID: "note", Due: due, ContentType: "text/plain", Subject: "s", Body: []byte("hello")}
		if err := errors.Join(s.Schedule(t.Context(), one("m", due)), s.Keep(t.Context(), note)); err != nil {
			t.Fatal(err)
		}
		got := x.has()
		if len(got) != 2 {
			t.Fatalf("%d items are kept, want 2", len(got))
		}
		c, err := scheduler.ParseCompanion(got[0].Body)
		if err != nil || c.References[0].MessageID != "m" || got[0].Note || !got[0].Due.Before(due) || got[0].Due.Before(due.Add(-time.Second)) || got[0].ContentType != "application/vnd.overdue.companion+json" || got[0].Subject != "each" {
			t.Errorf("kept %+v (%v), want the companion of m", got[0], err)
		}
		if n := got[1]; !n.Note || n.ID != "note" || !n.Due.Equal(due) || n.ContentType != "text/plain" || n.Subject != "s" || string(n.Body) != "hello" {
			t.Errorf("kept %+v, want the note as it was", n)
		}
		x.mu.Lock()
		x.full = errors.New("no room")
		x.mu.Unlock()
		if err := s.Schedule(t.Context(), one("n", due)); !errors.Is(err, x.full) {
			t.Errorf("a companion that the store does not keep = %v, want why", err)
		}
		if err := s.Keep(t.Context(), note); !errors.Is(err, x.full) {
			t.Errorf("a note that the store does not keep = %v, want why", err)
		}
	})
}

func TestAStoreIsAskedOnceForEachCompanionThatIsNeedless(t *testing.T) {
	setupStore(t, func(t *testing.T, x *heldItems, s *scheduler.Scheduler, r *prometheus.Registry) {
		if err := s.MeasureClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.RunCancel(ctx) }()
		for _, id := range []string{"a", "b", "c"} {
			now := time.Now().Truncate(time.Millisecond)
			refs := []scheduler.Reference{{MessageID: id, Sent: now, From: now, Until: now.Add(2 * time.Second), Deadline: now.Add(time.Hour), Within: time.Hour, Stated: "ttl"}}
			s.Expect("orders", refs)
			if err := s.Schedule(t.Context(), scheduler.Companion{Entity: "orders", References: refs}); err != nil {
				t.Fatal(err)
			}
			s.Confirm("orders", refs)
			if id != "b" { // which nobody receives
				s.Settle(index.Delivered{Key: index.KeyOf("orders", id, ""), Enqueued: now, Deadline: now.Add(time.Hour)})
			}
			time.Sleep(time.Minute)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("RunCancel = %v, want nil after a stop", err)
		}
		if got := x.has(); len(got) != 1 || len(x.asked) != 2 {
			t.Errorf("%d companions are left, and the store was asked for %q, want one, and each of the others once", len(got), x.asked)
		}
		if n, err := testutil.GatherAndCount(r, "overdue_deadlines_total"); err != nil || n != 1 {
			t.Errorf("%d kinds of outcomes are counted (%v), want those that were met", n, err)
		}
	})
}
