// SPDX-License-Identifier: Apache-2.0

package queue

import "testing"

// The subscriptions of a topic share its quota: one that is deleted must free what it held, or the
// topic fills up for good.
func TestAClosedQueueFreesWhatItHeldOfASharedQuota(t *testing.T) {
	shared := NewQuota(1 << 20)
	stays, _ := setup(t, Config{Shared: shared}, "a")
	held := shared.Used()
	q, _ := setup(t, Config{Shared: shared, RequiresDuplicateDetection: true, MaxDeliveryCount: 1})
	send(t, q, named("x", "waits"), named("y", "waits too"), named("z", "is dead-lettered"))
	c := q.NewConsumer(PeekLock)
	must(t, q.DeadLetter(receive(c, 1)[0].LockToken, "", ""))
	if got := shared.Used(); got <= held {
		t.Fatalf("quota in use = %d, want more than %d", got, held)
	}
	q.Close()
	if got := shared.Used(); got != held {
		t.Errorf("quota in use after Close = %d, want the %d of the queue that stays", got, held)
	}
	wantBodies(t, "the queue that stays", seen(stays.Peek(nil, 0, 10)), "a")
}
