// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"time"

	"overdue/internal/broker"
)

// deleteBatch deletes messages and returns how many.
func (s *scene) deleteBatch(count int32, before time.Time) int32 {
	s.Helper()
	status, m := s.manage(s.queue, "batch-delete-messages", map[string]any{"message-count": count, "enqueued-time-utc": before})
	if status == 204 {
		return 0
	}
	body, _ := m.Value.(map[string]any)
	n, isInt := body["message-count"].(int32)
	if status != 200 || !isInt || n == 0 {
		s.Fatalf("response: status %d, body %v; want 200 and how many", status, m.Value)
	}
	return n
}

var deleteSpecs = []spec{
	{name: "the oldest messages are deleted in batches", check: func(s *scene) {
		s.text("a", "b", "c")
		r := s.receiver()
		after := s.peek(r)[2].EnqueuedTime.Add(time.Second)
		if n := s.deleteBatch(2, after); n != 2 {
			s.Errorf("deleted %d, want 2", n)
		}
		s.wantBodies("left", s.peek(r), "c")
		if n := s.deleteBatch(10, after); n != 1 {
			s.Errorf("deleted %d, want 1", n)
		}
		if n := s.deleteBatch(10, after); n != 0 {
			s.Errorf("deleted %d of an empty queue, want none", n)
		}
	}},
	{name: "what was enqueued later is not deleted", check: func(s *scene) {
		s.text("a")
		r := s.receiver()
		first := *s.peek(r)[0].EnqueuedTime
		s.target.Wait(2 * time.Second)
		s.text("b")
		if n := s.deleteBatch(10, first.Add(-time.Second)); n != 0 {
			s.Errorf("deleted %d of what came before the first, want none", n)
		}
		if n := s.deleteBatch(10, first.Add(time.Second)); n != 1 {
			s.Errorf("deleted %d, want 1", n)
		}
		s.wantBodies("left", s.peek(r), "b")
	}},
	{name: "a locked message is not deleted", check: func(s *scene) {
		s.text("a", "b")
		m := s.one(s.receiver())
		if n := s.deleteBatch(10, m.EnqueuedTime.Add(time.Minute)); n != 1 {
			s.Errorf("deleted %d, want 1", n)
		}
		s.wantBodies("left", s.peek(s.receiver()), "a")
	}},
	// The JavaScript SDK's purgeMessages takes a 204 for the end only with this condition.
	{name: "a batch delete that finds nothing says so", check: func(s *scene) {
		s.wantStatus(204, "com.microsoft:message-not-found", s.queue, "batch-delete-messages",
			map[string]any{"message-count": int32(500), "enqueued-time-utc": time.Now()})
	}},
	{name: "a batch to delete is not too large and not empty", check: func(s *scene) {
		for _, count := range []int32{0, -1, 4001} {
			s.wantStatus(400, "com.microsoft:argument-out-of-range", s.queue, "batch-delete-messages",
				map[string]any{"message-count": count, "enqueued-time-utc": time.Now()})
		}
	}},
	{name: "nothing is deleted in batches from a partitioned queue", queue: broker.QueueConfig{EnablePartitioning: true}, check: func(s *scene) {
		s.text("a")
		s.wantStatus(400, "amqp:not-allowed", s.queue, "batch-delete-messages",
			map[string]any{"message-count": int32(1), "enqueued-time-utc": time.Now().Add(time.Hour)})
		s.wantBodies("left", s.peek(s.receiver()), "a")
	}},
}
