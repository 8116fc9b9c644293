// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/slack"
	"overdue/scheduler"
)

func TestAnEntityHasAPage(t *testing.T) {
	s := setup(t)
	meter := slack.NewMeter(s.registry)
	s.deadlines.Add("orders", "met", 4)
	s.deadlines.Add("orders", "missed", 1)
	s.Sample()
	s.lag.WithLabelValues("orders").Observe(0.05)
	s.Sample()
	s.miss(t, "1", alert.EventData{Entity: "orders", MessageID: "m-1"})
	s.miss(t, "2", alert.EventData{Entity: "other", MessageID: "m-2"})
	now := time.Now()
	for _, left := range []time.Duration{40 * time.Second, 30 * time.Second, 2 * time.Minute, -time.Second} {
		meter.Link("orders").Settled(now, now.Add(10*time.Second), now.Add(10*time.Second).Add(left), 1)
	}
	body := s.get(Path + "entity?name=orders").Body.String()
	wantText(t, body, "<strong>80\u00a0%</strong>", "of 5 deadlines", "Mean lag in the last 15 minutes, up to 50 ms", `<span class="top">50 ms</span>`, ">m-1<",
		"would be met by 99 of 100", "4 settled, 1 of them late", `<li class="late"><span class="count">1</span>`, `<span class="name">≤ 1 min</span>`)
	if strings.Contains(body, "m-2") {
		t.Error("the page of orders shows a message of another entity")
	}
	wantText(t, s.get(Path+"entity?name=other").Body.String(), "No deadline of this queue or topic")
	if w := s.get(Path + "entity?name=%3Cscript%3Ealert(1)"); w.Code != 404 || strings.Contains(w.Body.String(), "<script>alert") {
		t.Errorf("an unknown entity = %d %s, want 404 and its name as text", w.Code, w.Body)
	}
	s.outstanding.WithLabelValues("idle").Set(0)
	wantText(t, s.get(Path+"entity?name=idle").Body.String(), "No message was dead-lettered", "No message was settled")
}

func TestAHistogramHasAColumnForEachSpan(t *testing.T) {
	s := setup(t)
	now, orders := time.Now(), slack.NewMeter(s.registry).Link("orders")
	orders.Settled(now, now.Add(time.Second), now.Add(time.Second), 2)
	orders.Settled(now, now, now.Add(time.Microsecond), 1)
	orders.Settled(now, now, now.Add(15*time.Second), 6)
	r, err := read(s.registry)
	if err != nil {
		t.Fatal(err)
	}
	v := newSlackView("orders", r.slack["orders"])
	var got []string
	for _, x := range v.Columns {
		got = append(got, x.Name+" "+x.Count+" "+x.Height)
	}
	if want := "late 2 20.0, ≤ 0.1 s 1 10.0, ≤ 0.5 s 0 0.0, ≤ 1 s 0 0.0, ≤ 2 s 0 0.0, ≤ 5 s 0 0.0, ≤ 10 s 0 0.0, ≤ 20 s 6 60.0"; strings.Join(got, ", ") != want {
		t.Errorf("columns = %q, want %q", got, want)
	}
	if v.Late != "2" || v.Count != "9" || !v.HasLate {
		t.Errorf("slack = %+v, want 2 of 9 late", v)
	}
}

func TestTheNextDeadlinesAreShown(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		wantText(s.T, s.page(200, "deadlines"), "No deadline is pending")
		wantText(s.T, s.page(400, "deadlines?entity=a//b"), "not the name of a queue")
		sc, err := scheduler.New(scheduler.Config{MonitorQueue: "overdue-monitor", Links: s.source.Namespace.Deadlines.Links, Companions: "each"})
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = sc.Close(context.Background()) }) // nothing is in flight
		now := time.Now()
		for i := range maxUpcoming + 3 {
			sent := now.Add(time.Duration(i) * time.Second)
			err := sc.Schedule(s.Context(), scheduler.Companion{Entity: "orders", References: []scheduler.Reference{
				{MessageID: fmt.Sprintf("m-%02d%s", i, hostile), Sent: sent, Deadline: sent.Add(time.Hour), Within: time.Hour, Stated: "ttl"},
			}})
			if err != nil {
				s.Fatal(err)
			}
		}
		wantText(s.T, s.page(200, "deadlines"), `<a href="/dashboard/deadlines?entity=orders">orders</a></th><td class="n">53</td>`, "in 1 h")
		body := s.page(200, "deadlines?entity=orders")
		if n := strings.Count(body, "/dashboard/message?entity=orders"); n != maxUpcoming {
			s.Errorf("%d deadlines on the page, want %d", n, maxUpcoming)
		}
		wantText(s.T, body, "m-00&lt;script&gt;")
		if strings.Contains(body, "<script>alert") {
			s.Error("the page has a message-id as markup")
		}
	})
}
