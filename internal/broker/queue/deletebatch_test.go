// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"time"
)

func deleteBatch(t *testing.T, q *Queue, limit int, before time.Time, session *string) int {
	t.Helper()
	n, err := q.DeleteBatch(limit, before, session)
	must(t, err)
	return n
}

func TestBatchDeleteTakesTheOldestThatWait(t *testing.T) {
	alone(t, Config{DeadLetteringOnMessageExpiration: true}, func(t *testing.T, q *Queue) {
		start := time.Now()
		send(t, q, text("locked"), text("deferred"), Message{Body: []byte("expired"), TTL: time.Second})
		c := q.NewConsumer(PeekLock)
		ds := receive(c, 2)
		must(t, q.Defer(ds[1].LockToken))
		send(t, q, text("a"), text("b"), Message{Body: []byte("later"), ScheduledEnqueueTime: start.Add(time.Hour)})
		time.Sleep(10 * time.Second)
		send(t, q, text("c"))

		if got := deleteBatch(t, q, 10, start.Add(-time.Microsecond), nil); got != 0 {
			t.Errorf("deleted of what was enqueued before the first = %d, want 0", got)
		}
		if got := deleteBatch(t, q, 1, time.Now(), nil); got != 1 {
			t.Errorf("deleted with a limit of 1 = %d, want 1", got)
		}
		wantBodies(t, "left", seen(q.Peek(nil, 0, 10)), "locked", "deferred", "b", "later", "c")
		if got := deleteBatch(t, q, 10, start.Add(5*time.Second), nil); got != 1 {
			t.Errorf("deleted of what was enqueued before c = %d, want 1", got)
		}
		wantBodies(t, "left", seen(q.Peek(nil, 0, 10)), "locked", "deferred", "later", "c")
		wantBodies(t, "dead-letter queue", seen(q.DeadLetterQueue().Peek(nil, 0, 10)), "expired")
		q.Close()
		if _, err := q.DeleteBatch(1, time.Now(), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("DeleteBatch of a closed queue = %v, want ErrClosed", err)
		}
	})
}
