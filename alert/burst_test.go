// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/pipenet"
)

// A request that waits behind others has not failed: its timeout starts when it is made. If it
// counted from before, those at the end of the line would fail and be posted a second time.
func TestABurstToASlowWebhookPostsEachEventOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipenet.New()
		ln, err := network.Listen("hook")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		posted := map[string]int{}
		underWay, most := 0, 0
		srv := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var e Event
			if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
				t.Error(err)
			}
			mu.Lock()
			posted[e.ID]++
			underWay++
			most = max(most, underWay)
			mu.Unlock()
			time.Sleep(500 * time.Millisecond)
			mu.Lock()
			underWay--
			mu.Unlock()
		})}
		go func() { _ = srv.Serve(ln) }()
		transport := &http.Transport{
			DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return network.Dial(ctx, "hook") },
			MaxConnsPerHost: maxConns, MaxIdleConnsPerHost: maxConns,
		}
		a, err := NewWebhook("", HTTP{URL: "http://hook/", Client: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		const n = 4000
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				e := someEvent()
				e.ID = strconv.Itoa(i)
				if err := a.Alert(t.Context(), e); err != nil {
					t.Errorf("event %d: %v", i, err)
				}
			})
		}
		all.Wait()
		transport.CloseIdleConnections()
		_ = srv.Close()
		for id, times := range posted {
			if times != 1 {
				t.Errorf("event %s was posted %d times", id, times)
			}
		}
		if len(posted) != n || most > maxConns {
			t.Errorf("%d events were posted, %d at once; want %d, and %d at once at most", len(posted), most, n, maxConns)
		}
	})
}
