// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/testseed"
)

// TestMessagesThatMoveInTransactionsAreInOnePlace moves messages between two queues while locks
// lapse. Each step is in a transaction that is committed, rolled back, doomed, forgotten until it
// times out, or left behind by a link that goes away. However it goes, every message is in exactly
// one queue.
func TestMessagesThatMoveInTransactionsAreInOnePlace(t *testing.T) {
	seed := testseed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		const messages, steps = 40, 4000
		r := rand.New(rand.NewPCG(seed, 0))
		b, err := New(Config{Queues: []QueueConfig{
			{Name: "a", LockDuration: 30 * time.Second, MaxDeliveryCount: 1 << 30},
			{Name: "b", LockDuration: 30 * time.Second, MaxDeliveryCount: 1 << 30},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		m := &moves{t: t, r: r, ts: &transactions{now: b.Now}}
		for _, name := range []string{"a", "b"} {
			e := b.Default().entities.find(name)
			m.entities = append(m.entities, e)
			m.consumers = append(m.consumers, e.queue.NewConsumer(queue.PeekLock))
		}
		for i := range messages {
			if _, err := m.entities[0].queue.Send(queue.Message{Body: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
		}
		for range steps {
			m.step()
		}
		time.Sleep(10 * time.Minute) // everything open times out
		synctest.Wait()
		if n := len(m.ts.open); n != 0 {
			t.Errorf("%d transactions are left, want none", n)
		}
		where := map[string][]string{}
		for _, e := range m.entities {
			for _, v := range seen(e.queue.Peek(nil, 0, 10*messages)) {
				where[string(v.Body)] = append(where[string(v.Body)], e.path)
			}
		}
		for i := range messages {
			if at := where[fmt.Sprint(i)]; len(at) != 1 {
				t.Errorf("message %d is in %q, want one queue", i, at)
			}
		}
		if m.done == 0 || m.undone == 0 {
			t.Errorf("%d commits and %d rollbacks, want some of both", m.done, m.undone)
		}
		if len(where) != messages {
			t.Errorf("%d messages, want %d", len(where), messages)
		}
	})
}

type moves struct {
	t            *testing.T
	r            *rand.Rand
	ts           *transactions
	entities     []*Entity
	consumers    []*queue.Consumer
	open         []move
	done, undone int
}

// A move is an open transaction.
type move struct {
	id   []byte
	link *server.SinkLink
}

func (m *moves) step() {
	switch k := m.r.IntN(20); {
	case k < 8:
		m.begin()
	case k < 10:
		time.Sleep(time.Duration(m.r.IntN(40)) * time.Second)
	case len(m.open) > 0:
		i := m.r.IntN(len(m.open))
		o := m.open[i]
		m.open = append(m.open[:i], m.open[i+1:]...)
		m.end(o, k)
	}
}

// begin prepares to move one to three messages from one queue to the other.
func (m *moves) begin() {
	from := m.r.IntN(2)
	m.consumers[from].AddCredit(int64(1 + m.r.IntN(3)))
	m.consumers[from].Drain() // what is not used
	ds, _, _ := m.consumers[from].Take(nil)
	if len(ds) == 0 {
		return
	}
	o := move{link: new(server.SinkLink)}
	var err *amqp.Error
	if o.id, err = m.ts.declare(o.link); err != nil {
		m.t.Fatalf("declare: %v", err)
	}
	var tokens []queue.LockToken
	var copies []queue.Message
	for _, d := range ds {
		tokens = append(tokens, d.LockToken)
		copies = append(copies, queue.Message{Body: d.Body})
	}
	settle := func() *amqp.Error {
		return m.ts.settle(o.id, m.entities[from], m.entities[from].queue, queue.Settlement{Outcome: queue.Complete}, tokens, nil, nil)
	}
	send := func() *amqp.Error { return m.ts.send(o.id, m.entities[from], m.entities[1-from], copies) }
	parts := []func() *amqp.Error{settle, send}
	m.r.Shuffle(2, func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, part := range parts {
		if err := part(); err != nil {
			m.t.Fatalf("a part of a transaction: %v", err)
		}
	}
	m.open = append(m.open, o)
}

func (m *moves) end(o move, k int) {
	var err *amqp.Error
	switch {
	case k < 16:
		if err = m.ts.discharge(o.id, false); err == nil {
			m.done++
			return
		}
		if c := err.Condition; c != amqp.ErrCondTransactionTimeout && c != amqp.ErrCondTransactionUnknownID {
			m.t.Errorf("commit = %v, want only timeouts to keep it from working", err)
		}
	case k == 16:
		m.ts.discharge(o.id, true) // it may have timed out, which comes to the same
	case k == 17:
		m.ts.doom(o.id, amqp.Errorf(amqp.ErrCondNotAllowed, "doomed"))
	case k == 18:
		m.ts.abandon(o.link)
	} // else forgotten
	m.undone++
}
