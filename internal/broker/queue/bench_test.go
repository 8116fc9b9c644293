// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// A bench is a queue with n messages in one state, a clock that only moves by hand, and a consumer.
type bench struct {
	*Queue
	n    int
	now  time.Time
	c    *Consumer
	ds   []Delivery
	rand *rand.Rand
}

// step is how far apart in time the messages of a bench are. It is long against what a benchmark
// takes, so that the queue's timer, which runs by the real clock, stays out of it.
const step = time.Minute

func newBench(n int, cfg Config) *bench {
	b := &bench{n: n, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rand: rand.New(rand.NewPCG(1, 2))}
	cfg.Now = func() time.Time { return b.now }
	cfg.MaxDeliveryCount = 1 << 30
	b.Queue = New(cfg)
	b.c = b.NewConsumer(PeekLock)
	return b
}

func (b *bench) send(m Message) int64 {
	m.Body = make([]byte, 100)
	first, err := b.Send(m)
	if err != nil {
		panic(err)
	}
	return first
}

// fill sends n messages, made by m from their number.
func (b *bench) fill(m func(i int) Message) *bench {
	for i := range b.n {
		b.send(m(i))
	}
	return b
}

func plain(int) Message { return Message{} }

// receive takes one message; there must be one.
func (b *bench) receive() Delivery {
	b.c.AddCredit(1)
	b.ds, _, _ = b.c.Take(b.ds[:0])
	return b.ds[0]
}

func (b *bench) must(err error) {
	if err != nil {
		panic(err)
	}
}

// lockAll receives everything, one message per step of time, or all at once.
func (b *bench) lockAll(step time.Duration) (tokens []LockToken) {
	for range b.n {
		tokens = append(tokens, b.receive().LockToken)
		b.now = b.now.Add(step)
	}
	return tokens
}

// steady is operations that leave a queue of n messages as it was, but for what is older.
var steady = []struct {
	name  string
	setup func(n int) (*bench, func())
}{
	{"send, receive, complete", func(n int) (*bench, func()) {
		b := newBench(n, Config{}).fill(plain)
		return b, func() {
			b.send(Message{})
			b.must(b.Complete(b.receive().LockToken))
		}
	}},
	{"the same with a time to live", func(n int) (*bench, func()) {
		ttl := func(i int) Message { return Message{TTL: time.Duration(n+i%97) * time.Hour} }
		b := newBench(n, Config{}).fill(ttl)
		i := 0
		return b, func() {
			i++
			b.send(ttl(i))
			b.must(b.Complete(b.receive().LockToken))
		}
	}},
	{"the same with n message-ids remembered", func(n int) (*bench, func()) {
		named := func(i int) Message { return Message{MessageID: fmt.Sprintf("%032d", i)} }
		b := newBench(n, Config{RequiresDuplicateDetection: true}).fill(named)
		i := n
		return b, func() {
			b.send(named(i))
			i++
			b.must(b.Complete(b.receive().LockToken))
		}
	}},
	{"receive, release", func(n int) (*bench, func()) {
		b := newBench(n, Config{}).fill(plain)
		return b, func() { b.must(b.Release(b.receive().LockToken)) }
	}},
	{"receive, abandon with a time to live", func(n int) (*bench, func()) {
		b := newBench(n, Config{}).fill(func(int) Message { return Message{TTL: time.Hour} })
		return b, func() { b.must(b.Abandon(b.receive().LockToken)) }
	}},
	{"peek one, anywhere", func(n int) (*bench, func()) {
		b := newBench(n, Config{}).fill(plain)
		var vs []View
		return b, func() { vs = seen(b.Peek(vs[:0], 1+b.rand.Int64N(int64(n)), 1)) }
	}},
	{"schedule, cancel anywhere", func(n int) (*bench, func()) {
		b := newBench(n, Config{})
		at := func(int) Message {
			return Message{ScheduledEnqueueTime: b.now.Add(time.Hour + time.Duration(b.rand.Int64N(int64(time.Hour))))}
		}
		b.fill(at)
		seqs := make([]int64, n)
		for i := range seqs {
			seqs[i] = int64(i) + 1
		}
		return b, func() {
			i := b.rand.IntN(n)
			b.must(b.CancelScheduled(seqs[i]))
			seqs[i] = b.send(at(0))
		}
	}},
	{"activate one, receive, complete", func(n int) (*bench, func()) {
		b := newBench(n, Config{})
		start, i := b.now, n
		at := func(i int) Message { return Message{ScheduledEnqueueTime: start.Add(time.Duration(i+1) * step)} }
		b.fill(at)
		return b, func() {
			b.send(at(i))
			i++
			b.now = b.now.Add(step)
			b.must(b.Complete(b.receive().LockToken))
		}
	}},
	{"renew anywhere", func(n int) (*bench, func()) {
		b := newBench(n, Config{LockDuration: time.Duration(n+1000) * time.Hour}).fill(plain)
		tokens := b.lockAll(step)
		return b, func() {
			if _, err := b.RenewLock(tokens[b.rand.IntN(n)]); err != nil {
				panic(err)
			}
		}
	}},
	{"complete anywhere, send, receive", func(n int) (*bench, func()) {
		b := newBench(n, Config{}).fill(plain)
		tokens := b.lockAll(0)
		return b, func() {
			i := b.rand.IntN(n)
			b.must(b.Complete(tokens[i]))
			b.send(Message{})
			tokens[i] = b.receive().LockToken
		}
	}},
	{"lapse one, receive", func(n int) (*bench, func()) {
		b := newBench(n, Config{LockDuration: time.Duration(n) * step}).fill(plain)
		b.lockAll(step)
		return b, func() {
			b.receive()
			b.now = b.now.Add(step)
		}
	}},
	{"expire one, send", func(n int) (*bench, func()) {
		b := newBench(n, Config{Expiry: Eager})
		b.fill(func(i int) Message { return Message{TTL: time.Duration(i+1) * step} })
		return b, func() {
			b.now = b.now.Add(step)
			b.send(Message{TTL: time.Duration(n) * step})
		}
	}},
	{"receive deferred anywhere, defer", func(n int) (*bench, func()) {
		b := newBench(n, Config{}).fill(plain)
		for _, t := range b.lockAll(0) {
			b.must(b.Defer(t))
		}
		return b, func() {
			ds, err := b.ReceiveDeferred(PeekLock, 1+b.rand.Int64N(int64(n)))
			b.must(err)
			b.must(b.Defer(ds[0].LockToken))
		}
	}},
	{"dead-letter, complete there", func(n int) (*bench, func()) {
		b := newBench(n, Config{}).fill(plain)
		for _, t := range b.lockAll(0) {
			b.must(b.DeadLetter(t, "reason", "description"))
		}
		b.fill(plain)
		dead := *b
		dead.Queue = b.DeadLetterQueue()
		dead.c = dead.NewConsumer(PeekLock)
		return b, func() {
			b.must(b.DeadLetter(b.receive().LockToken, "reason", "description"))
			b.must(dead.Complete(dead.receive().LockToken))
			b.send(Message{})
		}
	}},
}

// BenchmarkOperation prints what an operation costs in a queue of a thousand and of a million, and
// the ratio.
func BenchmarkOperation(b *testing.B) {
	for _, bm := range steady {
		b.Run(bm.name, func(b *testing.B) {
			var ns [2]float64
			for i, n := range []int{1_000, 1_000_000} {
				q, op := bm.setup(n)
				ns[i] = median(b.N, op)
				q.Close()
			}
			b.ReportMetric(ns[0], "ns/1k")
			b.ReportMetric(ns[1], "ns/1M")
			b.ReportMetric(ns[1]/ns[0], "ratio")
			b.ReportMetric(0, "ns/op") // of the two together: means nothing
		})
	}
}

// median runs op n times and says how many nanoseconds one takes in a typical hundredth of that. A
// mean would tell more about what else the machine does.
func median(n int, op func()) float64 {
	chunk := max(n/100, 1)
	var took []time.Duration
	for range max(n/chunk, 1) {
		start := time.Now()
		for range chunk {
			op()
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / float64(chunk)
}

// waves is many messages that become due at one instant.
var waves = []struct {
	name  string
	setup func(n int) *bench
	check func(b *bench) bool
}{
	{"activate", func(n int) *bench {
		b := newBench(n, Config{})
		at := b.now.Add(time.Hour)
		return b.fill(func(int) Message { return Message{ScheduledEnqueueTime: at} })
	}, func(b *bench) bool { return b.Counts().Active == b.n }},
	{"lapse", func(n int) *bench {
		b := newBench(n, Config{LockDuration: time.Hour}).fill(plain)
		b.lockAll(0)
		return b
	}, func(b *bench) bool { return b.receive().DeliveryCount == 1 }},
	{"dead-letter expired", func(n int) *bench {
		b := newBench(n, Config{Expiry: Eager, DeadLetteringOnMessageExpiration: true})
		return b.fill(func(int) Message { return Message{TTL: time.Hour} })
	}, func(b *bench) bool { return b.Counts().DeadLetter == b.n }},
	{"drop expired", func(n int) *bench {
		b := newBench(n, Config{Expiry: Eager})
		return b.fill(func(int) Message { return Message{TTL: time.Hour} })
	}, func(b *bench) bool { return b.Counts().Active == 0 }},
}

// BenchmarkWave prints what each message costs when a thousand, or a million, become due at once.
func BenchmarkWave(b *testing.B) {
	for _, bm := range waves {
		b.Run(bm.name, func(b *testing.B) {
			var ns [2]float64
			for i, n := range []int{1_000, 1_000_000} {
				for round := range 3 {
					q := bm.setup(n)
					q.now = q.now.Add(time.Hour)
					start := time.Now()
					for range n/wave + 1 {
						q.Wake()
					}
					took := float64(time.Since(start).Nanoseconds()) / float64(n)
					if ns[i] = min(ns[i], took); round == 0 {
						ns[i] = took
					}
					if !bm.check(q) {
						b.Fatal("the wave did not do its work")
					}
					q.Close()
				}
			}
			b.ReportMetric(ns[0], "ns/1k")
			b.ReportMetric(ns[1], "ns/1M")
			b.ReportMetric(ns[1]/ns[0], "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkSession is the life of a session of one message, beside n others that wait.
func BenchmarkSession(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := newBench(n, Config{RequiresSession: true})
			defer q.Close()
			q.fill(func(i int) Message { return Message{SessionID: fmt.Sprint("session-", i), HasSession: true} })
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.send(Message{SessionID: fmt.Sprint("new-", i), HasSession: true})
				h, err := q.Sessions().Next(nil)
				if err != nil {
					b.Fatal(err)
				}
				q.c = h.NewConsumer(PeekLock)
				if err := q.Complete(q.receive().LockToken); err != nil {
					b.Fatal(err)
				}
				h.Close()
			}
		})
	}
}

// BenchmarkWaitAmidWave prints for how long somebody else waits at most while a large wave is
// moved: of what a receive finds expired, and of what is activated.
func BenchmarkWaitAmidWave(b *testing.B) {
	for _, bm := range []struct {
		name string
		m    func(now time.Time) Message
		done func(c Counts, n int) bool
	}{
		{"receive amid expired", func(time.Time) Message { return Message{TTL: time.Hour} },
			func(c Counts, n int) bool { return c.DeadLetter == n }},
		{"activate", func(now time.Time) Message { return Message{ScheduledEnqueueTime: now.Add(time.Hour)} },
			func(c Counts, _ int) bool { return c.Scheduled == 0 }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			const n = 1_000_000
			var longest, took time.Duration
			for b.Loop() {
				q := newBench(n, Config{DeadLetteringOnMessageExpiration: true})
				now := q.now
				q.fill(func(int) Message { return bm.m(now) })
				runtime.GC()
				q.now = q.now.Add(time.Hour)
				start := time.Now()
				q.c.AddCredit(1)
				for last := time.Now(); !bm.done(q.Counts(), n); last = time.Now() {
					longest = max(longest, time.Since(last))
				}
				took += time.Since(start)
				q.Close()
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/wave")
			b.ReportMetric(0, "ns/op")
		})
	}
}
