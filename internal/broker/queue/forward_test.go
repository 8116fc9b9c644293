// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestForwardedMessageBringsItsPastAlong(t *testing.T) {
	q, c := setup(t, Config{})
	m := Message{
		Body:                       []byte("a"),
		MessageID:                  "id",
		EnqueuedSequenceNumber:     42,
		Hops:                       2,
		DeadLetterReason:           "why",
		DeadLetterErrorDescription: "because",
		DeadLetterSource:           "orders",
		Properties:                 []Property{{"x", int32(1)}},
	}
	send(t, q, m)
	d := receive(c, 1)[0]
	if diff := gocmp.Diff(m, d.Message); diff != "" {
		t.Errorf("received: -want +got:\n%s", diff)
	}
	must(t, q.Abandon(d.LockToken, Property{"y", "2"}))
	d = receive(c, 1)[0]
	want := []Property{{"x", int32(1)}, {"y", "2"}}
	if diff := gocmp.Diff(want, d.Properties); diff != "" || d.Hops != 2 || d.EnqueuedSequenceNumber != 42 {
		t.Errorf("after abandon: %d hops, first number %d, properties: -want +got:\n%s", d.Hops, d.EnqueuedSequenceNumber, diff)
	}
	must(t, q.DeadLetter(d.LockToken, "new", ""))
	v := seen(q.DeadLetterQueue().Peek(nil, 0, 1))[0]
	if v.DeadLetterReason != "new" || v.DeadLetterErrorDescription != "" || v.DeadLetterSource != "orders" || v.Hops != 2 {
		t.Errorf("dead-lettered once more: %+v", v)
	}
	if got, want := q.quota.Used(), q.Counts().Size; got != want {
		t.Errorf("bytes taken = %d, want %d", got, want)
	}
}
