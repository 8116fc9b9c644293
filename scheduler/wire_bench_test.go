// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkEncode encodes companions of messages that were sent one by one, and in a batch.
func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{1, 16, groupSize} {
		for _, name := range []string{"singly", "batch"} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				c := Companion{Entity: "orders", Due: noon}
				for i := range n {
					sent := noon
					if name == "singly" {
						sent = sent.Add(time.Duration(i) * 12345)
					}
					c.References = append(c.References, Reference{
						MessageID: fmt.Sprintf("%024x", i), Sent: sent, From: sent.Add(-time.Millisecond), Until: sent.Add(2 * time.Second),
						Deadline: sent.Add(time.Hour), Within: time.Hour, Stated: "ttl",
					})
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := c.Marshal(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
