// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"testing"
	"time"
)

func partitionOf(v View) int64 { return v.SequenceNumber >> partitionShift }

func TestPartitionedQueueNumbersByPartitionAndDeliversByArrival(t *testing.T) {
	q, c := setup(t, Config{Partitioned: true})
	var want []string
	for i := range 40 {
		m := text(fmt.Sprint(i))
		switch i % 4 {
		case 1:
			m.PartitionKey = "k"
		case 2:
			m.SessionID, m.PartitionKey = "s", "s"
		}
		send(t, q, m)
		want = append(want, fmt.Sprint(i))
	}
	ds := receive(c, 10)
	wantBodies(t, "received", ds, want[:10]...)
	must(t, q.Release(ds[3].LockToken))
	wantBodies(t, "what is given back comes first again", receive(c, 1), want[3])

	seen := map[int64]bool{}
	keys := map[string]int64{}
	last := int64(0)
	vs := q.Peek(nil, 0, 100)
	for i, v := range vs {
		p := partitionOf(v)
		if p < 1 || p > Partitions || v.SequenceNumber <= last {
			t.Fatalf("peeked number %d: %#x after %#x, want rising within partitions 1 to %d", i, v.SequenceNumber, last, Partitions)
		}
		last = v.SequenceNumber
		seen[p] = true
		if v.SessionID != "" {
			if before, known := keys[v.SessionID]; known && before != p {
				t.Errorf("session %q is in partitions %d and %d, want one", v.SessionID, before, p)
			}
			keys[v.SessionID] = p
		}
	}
	if len(vs) != 40 || len(seen) != Partitions {
		t.Errorf("peeked %d messages in %d partitions, want 40 in %d", len(vs), len(seen), Partitions)
	}
	if got := q.Peek(nil, vs[7].SequenceNumber, 1)[0]; got.SequenceNumber != vs[7].SequenceNumber {
		t.Errorf("peek from %#x = %#x", vs[7].SequenceNumber, got.SequenceNumber)
	}
}

func TestScheduledMessageStaysInItsPartition(t *testing.T) {
	alone(t, Config{Partitioned: true}, func(t *testing.T, q *Queue) {
		at := time.Now().Add(time.Minute)
		later := func(key string) Message {
			return Message{Body: []byte(key), PartitionKey: key, ScheduledEnqueueTime: at}
		}
		seqs, err := q.Schedule(later("a"), later("b"), later("a"))
		must(t, err)
		for i, v := range []int64{seqs[0], seqs[1], seqs[2]} {
			if got := q.Peek(nil, v, 1)[0]; got.SequenceNumber != v {
				t.Errorf("scheduled number %d leads to %#x, want %#x", i, got.SequenceNumber, v)
			}
		}
		must(t, q.CancelScheduled(seqs[2]))
		time.Sleep(time.Minute)
		ds := receive(q.NewConsumer(PeekLock), 2)
		wantBodies(t, "activated", ds, "a", "b")
		for i, d := range ds {
			if d.SequenceNumber>>partitionShift != seqs[i]>>partitionShift || d.SequenceNumber == seqs[i] {
				t.Errorf("number after activation = %#x, want a new one in the partition of %#x", d.SequenceNumber, seqs[i])
			}
		}
	})
}

// Every partition gets its share of keys, whatever these have in common.
func TestKeysSpreadOverThePartitions(t *testing.T) {
	const keys = 1600
	got := map[uint32]int{}
	for i := range keys {
		got[hash(fmt.Sprint("customer-", i))%Partitions]++
	}
	for p := range uint32(Partitions) {
		if n := got[p]; n < keys/Partitions/2 || n > 2*keys/Partitions {
			t.Errorf("partition %d has %d of %d keys, want about %d", p, n, keys, keys/Partitions)
		}
	}
}
