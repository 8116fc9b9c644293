// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/brokertest"
)

func TestAnIdleLinkIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.queues = append(s.queues, "bills") })
		sc.want(sc.post("/orders/messages", "a"), http.StatusCreated, "")
		time.Sleep(idleSender / 2)
		sc.want(sc.post("/bills/messages", "b"), http.StatusCreated, "")
		open := func() int {
			synctest.Wait()
			sc.proxy.senders.mu.Lock()
			defer sc.proxy.senders.mu.Unlock()
			return len(sc.proxy.senders.byName)
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 2}, {idleSender/2 - time.Second, 2}, {time.Second, 1}, {idleSender / 2, 0}} {
			time.Sleep(step.after)
			if got := open(); got != step.want {
				t.Errorf("%d links are open, want %d", got, step.want)
			}
		}
		sc.want(sc.post("/orders/messages", "c"), http.StatusCreated, "")
	})
}

func TestLinksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const extra = 20
		sc := setup(t, func(s *setting) {
			for i := range maxSenders + extra {
				s.broker.Queues = append(s.broker.Queues, broker.QueueConfig{Name: fmt.Sprintf("q%d", i)})
			}
		})
		for i := range maxSenders + extra {
			sc.want(sc.post(fmt.Sprintf("/q%d/messages", i), "a"), http.StatusCreated, "")
			time.Sleep(time.Millisecond)
		}
		if got := len(sc.proxy.senders.byName); got != maxSenders {
			t.Errorf("%d links are open, want %d", got, maxSenders)
		}
		if sc.proxy.senders.byName["q0"] != nil || sc.proxy.senders.byName[fmt.Sprintf("q%d", extra)] == nil {
			t.Error("the links that were closed are not those unused the longest")
		}
		labels := 0
		for i := range maxSenders + extra {
			if sc.sends(fmt.Sprintf("q%d", i), resultUnmonitored) > 0 {
				labels++
			}
		}
		if labels != maxEntityLabels || sc.sends(otherEntities, resultUnmonitored) != extra {
			t.Errorf("%d entities have a label and %v messages none, want %d and %d",
				labels, sc.sends(otherEntities, resultUnmonitored), maxEntityLabels, extra)
		}
	})
}

func TestAnEntityThatComesIntoBeingIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.want(sc.post("/new/messages", "a"), http.StatusGone, "'new'")
		if err := sc.ns.Broker.AddQueue(broker.QueueConfig{Name: "new"}); err != nil {
			t.Fatal(err)
		}
		sc.want(sc.post("/new/messages", "a"), http.StatusCreated, "")
	})
}

// The broker ends such a connection with a condition that the SDK takes for the last word, and that is about no entity.
func TestAStallBeforeTheFirstTokenIsOverWithTheNextSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) {
			s.measure = false
			s.broker.Keys = []broker.AuthorizationRule{brokertest.Key()}
			s.proxy.Settings = func(string) Settings { return Settings{} }
		})
		sc.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Delay: 25 * time.Second, Times: 1})
		sc.want(sc.post("/orders/messages", "a"), http.StatusServiceUnavailable, "was lost; send it again")
		sc.want(sc.post("/orders/messages", "b"), http.StatusCreated, "")
	})
}
