// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/pipenet"
)

// A batch whose acknowledgement is late may have been stamped late as a whole: each of its
// messages is covered by the window of a companion, not only the first.
func TestEveryMessageOfALateBatchGetsASecondCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.warm()
		const n = 5
		var batch []string
		for i := range n {
			batch = append(batch, fmt.Sprintf(`{"Body":"b","BrokerProperties":{"MessageId":"m%d","TimeToLiveTimeSpan":"00:00:%d"}}`, i, 30+i))
		}
		sc.ns.Net.Stall(pipenet.ToListener) // the messages wait on the way to the broker
		answer := make(chan *httptest.ResponseRecorder)
		go func() {
			answer <- sc.post("/orders/messages", "["+strings.Join(batch, ",")+"]", "Content-Type", rest.BatchContentType)
		}()
		time.Sleep(5 * time.Second)
		sc.ns.Net.Resume(pipenet.ToListener)
		sc.want(<-answer, http.StatusCreated, "")

		enqueued := map[string]time.Time{}
		for _, m := range sc.messages("orders") {
			enqueued[m.MessageID] = *m.EnqueuedTime
		}
		refs, covered := map[string]int{}, map[string]int{}
		for _, ref := range sc.references() {
			refs[ref.MessageID]++
			if at := enqueued[ref.MessageID]; !at.Before(ref.From) && !at.After(ref.Until) {
				covered[ref.MessageID]++
			}
		}
		for i := range n {
			if id := fmt.Sprint("m", i); refs[id] != 2 || covered[id] != 1 {
				t.Errorf("%s: %d references, %d with a window around its stamp, want 2 and 1", id, refs[id], covered[id])
			}
		}
	})
}

// A message that may have been stamped late is not acknowledged before its second companion is
// accepted.
func TestALateSendFailsWithItsSecondCompanion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for _, c := range []struct {
			takes time.Duration
			then  func(context.Context) error // when the first companion is accepted
			want  error
		}{
			{time.Second, func(context.Context) error { return nil }, nil},
			{5 * time.Second, sc.scheduler.Close, errCompanion},
		} {
			r := sc.proxy.newRequest("orders", Settings{Monitored: true}, []*message{{ID: "m", TTL: time.Minute}})
			err := r.run(t.Context(), func(ctx context.Context) error {
				time.Sleep(c.takes)
				return c.then(ctx)
			})
			if !errors.Is(err, c.want) {
				t.Errorf("a send that takes %v = %v, want %v", c.takes, err, c.want)
			}
		}
	})
}
