// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
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

	given := map[int64]bool{}
	keys := map[string]int64{}
	last := int64(0)
	vs := seen(q.Peek(nil, 0, 100))
	for i, v := range vs {
		p := partitionOf(v)
		if p < 1 || p > Partitions || v.SequenceNumber <= last {
			t.Fatalf("peeked number %d: %#x after %#x, want rising within partitions 1 to %d", i, v.SequenceNumber, last, Partitions)
		}
		last = v.SequenceNumber
		given[p] = true
		if v.SessionID != "" {
			if before, known := keys[v.SessionID]; known && before != p {
				t.Errorf("session %q is in partitions %d and %d, want one", v.SessionID, before, p)
			}
			keys[v.SessionID] = p
		}
	}
	if len(vs) != 40 || len(given) != Partitions {
		t.Errorf("peeked %d messages in %d partitions, want 40 in %d", len(vs), len(given), Partitions)
	}
	if got := seen(q.Peek(nil, vs[7].SequenceNumber, 1))[0]; got.SequenceNumber != vs[7].SequenceNumber {
		t.Errorf("peek from %#x = %#x", vs[7].SequenceNumber, got.SequenceNumber)
	}
}

func TestScheduledMessageStaysInItsPartition(t *testing.T) {
	alone(t, Config{Partitioned: true}, func(t *testing.T, q *Queue) {
		at := time.Now().Add(time.Minute)
		later := func(key string) Message {
			return Message{Body: []byte(key), PartitionKey: key, ScheduledEnqueueTime: at}
		}
		var seqs []int64
		for _, key := range []string{"a", "b", "a"} {
			number, err := q.Schedule(later(key))
			must(t, err)
			seqs = append(seqs, number...)
		}
		for i, v := range seqs {
			if got := seen(q.Peek(nil, v, 1))[0]; got.SequenceNumber != v {
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

func TestAPartitionedQueueTakesMessagesThatBelongTogether(t *testing.T) {
	message := func(session, key, id string) Message {
		return Message{SessionID: session, HasSession: session != "", PartitionKey: key, MessageID: id}
	}
	for name, test := range map[string]struct {
		a, b   Message
		detect error // with duplicate detection
		plain  error // without
	}{
		"two keys":                    {message("", "a", ""), message("", "b", ""), ErrDistinctIDs, ErrDistinctKeys},
		"a key and none":              {message("", "a", ""), message("", "", "1"), ErrDistinctIDs, ErrDistinctKeys},
		"two sessions":                {message("a", "", ""), message("b", "", ""), ErrDistinctIDs, ErrDistinctKeys},
		"a session and its key alone": {message("a", "", ""), message("", "a", ""), ErrDistinctIDs, ErrDistinctKeys},
		"one session, stated as key":  {message("a", "", "1"), message("a", "a", "2"), nil, nil},
		"one key":                     {message("", "a", "1"), message("", "a", "2"), nil, nil},
		"neither":                     {message("", "", ""), message("", "", ""), nil, nil},
		"two ids":                     {message("", "", "1"), message("", "", "2"), ErrDistinctIDs, nil},
	} {
		for _, detect := range []bool{true, false} {
			q, _ := setup(t, Config{Partitioned: true, RequiresDuplicateDetection: detect})
			want := test.plain
			if detect {
				want = test.detect
			}
			_, sent := q.Send(test.a, test.b)
			_, scheduled := q.Schedule(test.a, test.b)
			r, reserved := q.Reserve(false, test.a, test.b)
			for how, err := range map[string]error{"sent": sent, "scheduled": scheduled, "reserved": reserved} {
				if !errors.Is(err, want) {
					t.Errorf("%s, %s, duplicates detected %v: %v, want %v", name, how, detect, err, want)
				}
			}
			if r != nil {
				r.Cancel()
			}
			if want != nil && q.Counts() != (Counts{}) {
				t.Errorf("%s: something of it stays: %+v", name, q.Counts())
			}
		}
	}
}
