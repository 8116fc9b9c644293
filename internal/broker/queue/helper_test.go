// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
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
