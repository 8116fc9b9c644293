// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// reflected is the wire form of c as encoding/json writes it.
func reflected(c *Companion) ([]byte, error) {
	w := wireCompanion{Version: c.Version(), Kind: c.kind(), Entity: c.Entity, Attempt: c.Attempt}
	for _, r := range c.References {
		wr := wireReference{
			MessageID: r.MessageID, SessionID: r.SessionID, PartitionKey: r.PartitionKey,
			Sent: r.Sent.UTC(), Deadline: r.Deadline.UTC(), WithinMs: r.Within.Milliseconds(),
			Stated: r.Stated, Once: r.Once, CompleteMs: r.CompleteWithin.Milliseconds(), WarnedMs: r.Warned.Milliseconds(), Incomplete: r.Incomplete, Missed: r.Missed,
			Traceparent: r.Traceparent, Notified: r.Notified,
		}
		if !r.From.IsZero() {
			from, until := r.From.UTC(), r.Until.UTC()
			wr.From, wr.Until = &from, &until
		}
		w.References = append(w.References, wr)
	}
	return json.Marshal(w)
}

func TestCompanionIsEncodedAsEncodingJSONWould(t *testing.T) {
	var e encoder // one for all, as in a batch
	rapid.Check(t, func(t *rapid.T) {
		instant := func(label string) time.Time {
			zone := rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", 3600)}).Draw(t, "zone")
			return time.Unix(rapid.Int64Range(-1e11, 1e12).Draw(t, label), rapid.Int64Range(0, 1e9).Draw(t, "ns")).In(zone)
		}
		text := func(label string) string {
			return rapid.OneOf(rapid.Just(""), rapid.StringN(0, 20, -1), rapid.StringMatching(`[ -~]{0,9}`)).Draw(t, label)
		}
		c := Companion{Entity: text("entity"), Attempt: rapid.IntRange(-1, 2).Draw(t, "attempt")}
		for range rapid.IntRange(0, 5).Draw(t, "references") {
			var r Reference
			if n := len(c.References); n > 0 && rapid.Bool().Draw(t, "as the one before") {
				r = c.References[n-1]
			} else {
				r = Reference{Sent: instant("sent"), Deadline: instant("deadline"), Stated: text("stated"), Once: rapid.Bool().Draw(t, "once"),
					Within: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "within"))}
				r.CompleteWithin = time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "complete within"))
				r.Warned = time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "warned"))
				r.Incomplete = rapid.Bool().Draw(t, "incomplete")
				r.Traceparent = text("trace")
				r.Notified = text("notified")
				if rapid.Bool().Draw(t, "only to be completed") {
					r.Stated = StatedComplete
				}
				if rapid.Bool().Draw(t, "measured") {
					r.From, r.Until = instant("from"), instant("until")
				}
				if rapid.Bool().Draw(t, "missed") {
					r.Missed = &Missed{SequenceNumber: 7, DeadLetterReason: text("reason"), TakenBy: []string{text("sink")}}
				}
			}
			r.MessageID, r.SessionID, r.PartitionKey = text("id"), text("session"), text("key")
			c.References = append(c.References, r)
		}
		got, gotErr := e.encode(&c)
		want, wantErr := reflected(&c)
		if (gotErr != nil) != (wantErr != nil) {
			t.Fatalf("error %v, want %v", gotErr, wantErr)
		}
		if gotErr != nil {
			return // a year that JSON cannot hold
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("(-encoding/json +got):\n%s", diff)
		}
	})
}

// Each character alone, so that none is escaped for the sake of another.
func TestEveryCharacterIsEncodedAsEncodingJSONWould(t *testing.T) {
	var e encoder
	for c := range rune(0x180) {
		want, err := json.Marshal(string(c))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.text(nil, string(c)); string(got) != string(want) {
			t.Errorf("%q is encoded as %s, want %s", c, got, want)
		}
	}
}

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
				var e encoder
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := c.marshal(&e); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
