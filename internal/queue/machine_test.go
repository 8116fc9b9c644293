// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// A machine does the same to a queue and to a model of it and compares what comes out. It has one for the queue and
// one for the dead-letter queue.
type machine struct {
	q         *Queue
	m         *model
	consumers []*Consumer // beside m.consumers
	tokens    []LockToken // all ever seen
	now       func() time.Time
}

// TestQueueAgreesWithASliceThatIsSearchedFromTheStart covers sequence order, delivery counts, credit in order of
// arrival, expiry in all modes, never early, nothing lost and nothing doubled, with a clock that also steps back.
func TestQueueAgreesWithASliceThatIsSearchedFromTheStart(t *testing.T) {
	for name, expiry := range map[string]Expiry{"lazy": Lazy, "lazy-head": LazyHead, "eager": Eager} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { runMachine(t, expiry) })
		})
	}
}

func runMachine(t *rapid.T, expiry Expiry) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg := Config{
		LockDuration:                     10 * time.Second,
		MaxDeliveryCount:                 rapid.IntRange(1, 3).Draw(t, "max delivery count"),
		DefaultMessageTimeToLive:         time.Duration(rapid.IntRange(0, 1).Draw(t, "default ttl")) * 40 * time.Second,
		DeadLetteringOnMessageExpiration: rapid.Bool().Draw(t, "dead-lettering"),
		Expiry:                           expiry,
		Now:                              func() time.Time { return now },
	}
	q := New(cfg)
	defer q.Close()
	dead := &model{cfg: cfg, now: now}
	main := &machine{q: q, m: &model{cfg: cfg, now: now, dead: dead}, now: cfg.Now}
	dlq := &machine{q: q.DeadLetterQueue(), m: dead, now: cfg.Now}
	settle := func() {
		main.m.now, dead.now = now, now
		main.m.settleTime()
		dead.settleTime()
	}
	ops := map[string]func(*rapid.T){
		"clock": func(t *rapid.T) {
			// Mostly forward in steps below, at and above the lock duration; sometimes back.
			step := rapid.SampledFrom([]int{1, 1, 3, 5, 9, 10, 11, 30, -4}).Draw(t, "seconds")
			now = now.Add(time.Duration(step) * time.Second)
		},
		"": func(t *rapid.T) {
			settle()
			main.compare(t)
			dlq.compare(t)
			compareCounts(t, main, dlq)
		},
	}
	add := func(name string, op func(*rapid.T)) {
		ops[name] = func(t *rapid.T) {
			settle()
			op(t)
		}
	}
	for name, op := range main.operations() {
		add(name, op)
	}
	for name, op := range main.senders() {
		add(name, op)
	}
	// The dead-letter queue is one among them, or else half of all steps would go to what is mostly empty.
	atDead := dlq.operations()
	add("dead-letter queue", func(t *rapid.T) {
		atDead[rapid.SampledFrom(slices.Sorted(maps.Keys(atDead))).Draw(t, "operation")](t)
	})
	t.Repeat(ops)
}

// senders is what only the queue itself can do.
func (mc *machine) senders() map[string]func(*rapid.T) {
	n := 0
	batch := func(t *rapid.T, scheduled bool) (ms []Message) {
		for range rapid.IntRange(1, 5).Draw(t, "messages") {
			n++
			msg := Message{
				Body: fmt.Append(nil, n),
				TTL:  time.Duration(rapid.SampledFrom([]int{0, 0, 2, 5, 60}).Draw(t, "ttl")) * time.Second,
			}
			if scheduled {
				at := rapid.IntRange(-1, 20).Draw(t, "scheduled in")
				msg.ScheduledEnqueueTime = mc.now().Add(time.Duration(at) * time.Second)
			}
			ms = append(ms, msg)
			mc.m.send(msg)
		}
		mc.m.assign()
		return ms
	}
	return map[string]func(*rapid.T){
		"send": func(t *rapid.T) {
			want := mc.m.lastSeq + 1
			if first, err := mc.q.Send(batch(t, false)...); err != nil || first != want {
				t.Fatalf("Send = %d, %v, want %d", first, err, want)
			}
		},
		"schedule": func(t *rapid.T) {
			want := mc.m.lastSeq + 1
			if seqs, err := mc.q.Schedule(batch(t, true)...); err != nil || seqs[0] != want {
				t.Fatalf("Schedule = %d, %v, want %d and following", seqs, err, want)
			}
		},
		"cancel": func(t *rapid.T) {
			seqs := mc.someNumbers(t, Scheduled)
			var want error
			for _, seq := range seqs {
				if x := mc.m.find(seq); x == nil || x.State != Scheduled {
					want = ErrMessageNotFound
				}
			}
			if got := mc.q.CancelScheduled(seqs...); !errors.Is(got, want) {
				t.Fatalf("CancelScheduled(%d) = %v, want %v", seqs, got, want)
			}
			for _, seq := range seqs {
				if want == nil {
					mc.m.remove(mc.m.find(seq))
				}
			}
		},
	}
}

func (m *model) send(msg Message) {
	if limit := m.cfg.DefaultMessageTimeToLive; limit > 0 && (msg.TTL == 0 || msg.TTL > limit) {
		msg.TTL = limit
	}
	m.lastSeq++
	x := &modelMsg{View: View{Message: msg, SequenceNumber: m.lastSeq, EnqueuedTime: m.now, State: Scheduled}}
	m.msgs = append(m.msgs, x)
	if !msg.ScheduledEnqueueTime.After(m.now) {
		m.enqueue(x)
	}
}

// someNumbers is one to three different sequence numbers, mostly of messages in that state.
func (mc *machine) someNumbers(t *rapid.T, state State) []int64 {
	candidates := []int64{mc.m.lastSeq + 7}
	for _, x := range mc.m.msgs {
		if x.State == state {
			candidates = append(candidates, x.SequenceNumber)
		}
	}
	seqs := rapid.SliceOfNDistinct(rapid.SampledFrom(candidates), 1, min(3, len(candidates)), rapid.ID).Draw(t, "numbers")
	slices.Sort(seqs)
	return seqs
}

// compare looks at everything in the queue, and at its structure.
func (mc *machine) compare(t *rapid.T) {
	t.Helper()
	var want []View
	for _, x := range mc.m.sorted() {
		want = append(want, x.View)
	}
	got := mc.q.Peek(nil, -1, len(want)+10)
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Peek: -want +got:\n%s", diff)
	}
	if len(want) > 0 {
		i := rapid.IntRange(0, len(want)-1).Draw(t, "peek from")
		got := mc.q.Peek(nil, want[i].SequenceNumber, 2)
		if diff := gocmp.Diff(want[i:min(i+2, len(want))], got); diff != "" {
			t.Fatalf("Peek from %d: -want +got:\n%s", want[i].SequenceNumber, diff)
		}
	}
	for i, c := range mc.consumers {
		o := mc.m.consumers[i]
		if got, want := c.Credit(), int64(mc.m.creditOf(o)-o.debt+len(o.outbox)+o.lapsed); got != want {
			t.Fatalf("Credit of consumer %d = %d, want %d", i, got, want)
		}
	}
	mc.q.check(t)
}

func compareCounts(t *rapid.T, main, dlq *machine) {
	t.Helper()
	var want Counts
	for _, x := range slices.Concat(main.m.msgs, dlq.m.msgs) {
		want.Size += entryOverhead + int64(len(x.Body)+len(x.DeadLetterReason)+len(x.DeadLetterErrorDescription))
		for _, p := range x.Properties {
			want.Size += propertySize(p)
		}
	}
	for _, x := range main.m.msgs {
		switch x.State {
		case Active:
			want.Active++
		case Deferred:
			want.Deferred++
		case Scheduled:
			want.Scheduled++
		}
	}
	want.DeadLetter = len(dlq.m.msgs)
	if got := main.q.Counts(); got != want {
		t.Fatalf("Counts = %+v, want %+v", got, want)
	}
	if got := main.q.used.Load(); got != want.Size {
		t.Fatalf("bytes held = %d, want %d", got, want.Size)
	}
}
