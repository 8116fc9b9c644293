// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/testseed"
	"overdue/monitor/search"
	"overdue/scheduler"

	"github.com/prometheus/client_golang/prometheus"
)

// Messages are searched for in the windows of their sends, in a queue where a page holds a
// millisecond or less. Most were enqueued when their sends were made; others a little later or
// earlier, so that the likely page does not have them. All are found, and few pages are read for
// each.
func TestMessagesAreFoundWhereverInTheirWindows(t *testing.T) {
	seed := testseed.Of(t)
	play(t, func(s *scene) {
		rng := rand.New(rand.NewPCG(seed, 0))
		q, pattern := s.Queue(workQueue), s.patterns("m")["m"]
		sends := 0
		numbers, sent, enqueued := map[string]int64{}, map[string]time.Time{}, map[string]time.Time{}
		const millis = 100
		for ms := range millis {
			n := 100 + rng.IntN(400)
			special := rng.IntN(n)
			for i := range n {
				sends++
				id, at := fmt.Sprintf("m-%06d", sends), time.Now()
				number, err := q.Send(queue.Message{Body: bytes.Replace(pattern, []byte("m-000000"), []byte(id), 1), MessageID: id, TTL: time.Hour})
				s.Must(err)
				if i == special && ms%4 == 0 {
					numbers[id], enqueued[id] = number, at
					sent[id] = at.Add(time.Duration(max(rng.IntN(5)-3, 0)*(rng.IntN(13)-6)) * time.Millisecond)
				}
			}
			time.Sleep(time.Millisecond)
		}
		peeks := 0
		for _, together := range []int{1, 3, len(numbers)} {
			v := search.View{Links: s.Namespace.Links(s.T), Path: workQueue, Operations: operations.New(prometheus.NewRegistry())}
			var wants []*search.Want
			for id, at := range enqueued {
				from := at.Add(-time.Duration(rng.IntN(8)) * time.Millisecond)
				w := &search.Want{}
				w.Seek(&scheduler.Reference{
					MessageID: id, Sent: sent[id], From: from, Until: from.Add(time.Duration(8+rng.IntN(40)) * time.Millisecond), Within: time.Hour, Stated: "ttl",
				})
				gone := &search.Want{}
				gone.Seek(&scheduler.Reference{MessageID: "gone", Sent: from, From: from, Until: from, Within: time.Hour, Stated: "ttl"})
				wants = append(wants, w)
				if len(wants)%8 == 0 {
					wants = append(wants, gone)
				}
				if len(wants) < together {
					continue
				}
				s.Must(v.FindNamed(s.Context(), wants, func(*search.Want, *link.Message) bool { return true }))
				s.wantFound(wants, numbers)
				wants = nil
			}
			v.Close(s.Context())
			if together < len(numbers) {
				peeks += v.Peeks
			}
		}
		if most := 11 * len(numbers); peeks > most {
			s.Errorf("%d peeks to find %d messages twice, want at most %d", peeks, len(numbers), most)
		}
	})
}

func (s *scene) wantFound(wants []*search.Want, numbers map[string]int64) {
	s.Helper()
	for _, w := range wants {
		got := int64(0)
		if w.Found != nil {
			got = w.Found.SequenceNumber
		}
		if got != numbers[w.MessageID] {
			s.Errorf("%s: found number %d, want %d", w.MessageID, got, numbers[w.MessageID])
		}
	}
}
