// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"overdue/internal/testing/racetest"
)

// heapInUse is what is reachable, in bytes.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // the first returns before the memory is free
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAMessageCostsAtMostFourHundredBytesBesidesItsBody(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a queue with a million messages")
	}
	const body, limit = 100, 400
	n := racetest.Sized(1_000_000, 100_000)
	for name, m := range map[string]func(now time.Time) Message{
		"waiting": func(time.Time) Message { return Message{} },
		"waiting with a time to live": func(time.Time) Message {
			return Message{TTL: time.Hour}
		},
		"scheduled": func(now time.Time) Message { return Message{ScheduledEnqueueTime: now.Add(time.Hour)} },
	} {
		t.Run(name, func(t *testing.T) {
			before := heapInUse()
			b := newBench(n, Config{}).fill(func(int) Message { return m(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) })
			each := (heapInUse()-before)/int64(n) - body
			t.Logf("%d bytes per message besides its body of %d", each, body)
			if each > limit {
				t.Errorf("bytes per message besides its body = %d, want at most %d", each, limit)
			}
			b.Close()
		})
	}
}

func TestMemoryIsGivenBackAfterAPeak(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	const n = 100_000
	before := heapInUse()
	b := newBench(n, Config{}).fill(func(int) Message { return Message{TTL: time.Hour} })
	if errs := b.Settle(Settlement{Outcome: Complete}, b.lockAll(0)...); errs != nil {
		t.Fatalf("Settle: %v", errs[0])
	}
	if left := heapInUse() - before; left > 200_000 {
		t.Errorf("an empty queue holds %d bytes after a peak of %d messages, want at most 200000", left, n)
	}
	b.Close()
}

// A discard is a log that keeps nothing, and leaves nothing in memory.
type discard struct{ onDisk []func() }

func (d *discard) Append(s *Step)                         { d.onDisk = append(d.onDisk, s.OnDisk) }
func (*discard) Read([]int64, func(int64, Content)) error { return nil }
func (*discard) Keep(bytes int) bool                      { return bytes <= 0 }

// Five million of them, and 40 percent of that as garbage, are below 2 GiB.
func TestAMessageOnDiskCostsAtMostTwoHundredSixtyBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a queue with a million messages")
	}
	const limit = 260
	n := racetest.Sized(1_000_000, 100_000)
	before := heapInUse()
	log := &discard{}
	b := newBench(n, Config{Log: log}).fill(func(i int) Message { return Message{MessageID: fmt.Sprintf("%032d", i)} })
	for _, f := range log.onDisk {
		f()
	}
	log.onDisk = nil
	each := (heapInUse() - before) / int64(n)
	t.Logf("%d bytes per message", each)
	if each > limit {
		t.Errorf("bytes per message = %d, want at most %d", each, limit)
	}
	b.Close()
}
