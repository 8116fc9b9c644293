// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
)

func TestDeadOnArrivalIsInTheDeadLetterQueueAlone(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		quota := NewQuota(1) // Pass has been admitted elsewhere
		q := New(Config{RequiresSession: sessions, Shared: quota})
		defer q.Close()
		if err := q.Pass(Message{MessageID: "well", HasSession: true}); err != nil {
			t.Fatal(err)
		}
		if err := q.PassDead("Why", "because", Message{MessageID: "a"}, Message{MessageID: "b"}); err != nil {
			t.Fatal(err)
		}
		if got := q.Counts(); got.Active != 1 || got.DeadLetter != 2 {
			t.Errorf("sessions %v: Counts = %+v, want 1 active and 2 dead", sessions, got)
		}
		dead := seen(q.DeadLetterQueue().Peek(nil, 0, 10))
		if len(dead) != 2 || dead[0].MessageID != "a" || dead[0].SequenceNumber != 2 || dead[1].SequenceNumber != 3 ||
			dead[0].DeadLetterReason != "Why" || dead[0].DeadLetterErrorDescription != "because" || dead[0].DeadLetteredTime.IsZero() {
			t.Errorf("sessions %v: the dead are %+v, want a and b under numbers 2 and 3, with the reason", sessions, dead)
		}
		if got, want := quota.Used(), q.Counts().Size; got != want {
			t.Errorf("sessions %v: the quota counts %d bytes, the queue %d", sessions, got, want)
		}
		if err := q.DeadLetterQueue().PassDead("Why", ""); !errors.Is(err, ErrDeadLetterQueue) {
			t.Errorf("PassDead to a dead-letter queue = %v, want ErrDeadLetterQueue", err)
		}
		q.Close()
		if err := q.PassDead("Why", "", Message{}); !errors.Is(err, ErrClosed) {
			t.Errorf("PassDead after Close = %v, want ErrClosed", err)
		}
	}
}
