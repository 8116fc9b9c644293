// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"overdue/internal/broker"
)

// With onMonitorDown: refuse a process that loses its monitor queue refuses what needs a companion, and nothing else: it does
// not end, and takes nothing along that it only relays. With the queue it comes back.
func TestAProcessOutlivesItsMonitorQueue(t *testing.T) {
	p := startTest(t, "broker: {queues: [{name: orders}, {name: plain}]}\nmonitor: {entities: [{queue: orders}]}\n")
	ready := func() bool { status, _ := askAdmin(p.admin, "GET", "/readyz", ""); return status == http.StatusOK }
	plain := func() int {
		resp, err := http.Post("http://"+p.RestAddr()+"/plain/messages", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	space := p.broker.Default()
	for i := range 2 {
		eventually(t, "the process is ready", ready)
		if status := postDue(t, p, fmt.Sprint("before-", i)); status != http.StatusCreated {
			t.Errorf("send %d = %d, want 201", i, status)
		}
		if err := space.DeleteQueue(p.cfg.MonitorQueue); err != nil {
			t.Fatal(err)
		}
		if status := postDue(t, p, fmt.Sprint("meanwhile-", i)); status != http.StatusServiceUnavailable {
			t.Errorf("send %d without the monitor queue = %d, want 503", i, status)
		}
		eventually(t, "the process is not ready, and says why", func() bool {
			_, body := askAdmin(p.admin, "GET", "/readyz?verbose", "")
			return !ready() && strings.Contains(body, `has no queue "overdue-monitor"; create it`)
		})
		if status := plain(); status != http.StatusCreated {
			t.Errorf("send to what is not monitored = %d without the monitor queue, want 201", status)
		}
		select {
		case err := <-p.life.Failed:
			t.Fatalf("the process failed: %v", err)
		default:
		}
		if _, err := space.CreateQueue(broker.QueueConfig{Name: p.cfg.MonitorQueue}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the process is ready again", ready)
}
