// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// receive gives c credit for n and takes what comes of it.
func receive(c *Consumer, n int) []Delivery {
	c.AddCredit(int64(n))
	ds, _ := c.Take(nil)
	return ds
}

// drain is a receive that ends: n credits, and those not used are withdrawn.
func drain(t *testing.T, c *Consumer, n int) []Delivery {
	t.Helper()
	c.AddCredit(int64(n))
	c.Drain()
	var ds []Delivery
	for {
		var drained bool
		before := len(ds)
		if ds, drained = c.Take(ds); drained {
			return ds
		}
		if len(ds) == before {
			t.Fatalf("Take after Drain gave nothing and did not report drained")
		}
	}
}

func send(t *testing.T, q *Queue, ms ...Message) int64 {
	t.Helper()
	first, err := q.Send(ms...)
	if err != nil {
		t.Fatalf("Send: %v", err)
	}
	return first
}

func text(s string) Message { return Message{Body: []byte(s)} }

func bodies[T interface{ text() string }](vs []T) []string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = v.text()
	}
	return out
}

func (v View) text() string { return string(v.Body) }

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{LockDuration: time.Minute, DeadLetteringOnMessageExpiration: true})
		defer q.Close()
		send(t, q, text("a"), text("b"))
		c := q.NewConsumer(PeekLock)
		ds := receive(c, 1)
		if len(ds) != 1 || ds[0].text() != "a" {
			t.Fatalf("got %v", bodies(ds))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := q.Complete(ds[0].LockToken); !errors.Is(err, ErrLockLost) {
			t.Errorf("Complete after the lock lapsed = %v, want ErrLockLost", err)
		}
		ds = drain(t, c, 10)
		if len(ds) != 2 || ds[0].DeliveryCount != 1 {
			t.Fatalf("got %v", bodies(ds))
		}
		if errs := q.CompleteAll([]LockToken{ds[0].LockToken, ds[1].LockToken}); errs != nil {
			t.Fatal(errs)
		}
		if n := q.Counts(); n != (Counts{}) {
			t.Fatal(n)
		}
	})
}
