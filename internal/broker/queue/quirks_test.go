// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker/quirk"

	"github.com/google/go-cmp/cmp"
)

// The quirk changes where a released message goes, and nothing of what is abandoned later.
func TestAReleasedMessageGoesLastUntilItIsReceived(t *testing.T) {
	q := New(Config{Quirks: quirk.ReleaseLast})
	defer q.Close()
	c := q.NewConsumer(PeekLock)
	send(t, q, text("a"), text("b"))
	must(t, q.Release(receive(c, 1)[0].LockToken))
	ds := receive(c, 2)
	if diff := cmp.Diff([]string{"b", "a"}, bodies(ds)); diff != "" {
		t.Errorf("after the release: -want +got:\n%s", diff)
	}
	for _, d := range ds {
		must(t, q.Abandon(d.LockToken))
	}
	if diff := cmp.Diff([]string{"a", "b"}, bodies(receive(c, 2))); diff != "" {
		t.Errorf("once abandoned: -want +got:\n%s", diff)
	}
}

// With the quirk, a receive does not deliver what has expired, and leaves it in the queue for up to
// two seconds.
func TestACleanUpEndsAfterTheReceive(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := New(Config{Quirks: quirk.CleanupLate, RequiresSession: sessions, DeadLetteringOnMessageExpiration: true})
			defer q.Close()
			const n = 20
			for range n {
				send(t, q, Message{Body: []byte("expired"), TTL: time.Second, SessionID: "s", HasSession: sessions})
			}
			send(t, q, Message{Body: []byte("live"), SessionID: "s", HasSession: sessions})
			time.Sleep(time.Minute)
			var c *Consumer
			if sessions {
				s, err := q.Sessions().Accept("s")
				must(t, err)
				c = s.NewConsumer(PeekLock)
			} else {
				c = q.NewConsumer(PeekLock)
			}
			if diff := cmp.Diff([]string{"live"}, bodies(receive(c, 1))); diff != "" {
				t.Errorf("received: -want +got:\n%s", diff)
			}
			if left := len(seen(q.Peek(nil, 0, 2*n))) - 1; left == 0 || left == n {
				t.Errorf("%d of %d expired messages are left at once, want some", left, n)
			}
			if more := len(receive(c, 1)); more > 0 {
				t.Errorf("received %d messages more, want none", more)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if left, dead := len(seen(q.Peek(nil, 0, 2*n)))-1, q.Counts().DeadLetter; left != 0 || dead != n {
				t.Errorf("two seconds later %d are left and %d dead-lettered, want %d dead-lettered", left, dead, n)
			}
		})
	}
}
