// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/chromedp/chromedp"

	"overdue/internal/demo"
)

// The pictures of docs/operate/monitor.md and dlq.md: the overview by day and on a phone in the dark, an
// entity, dead letters and a preview.
func TestPictures(t *testing.T) {
	s := start(t)
	large, small := s.open(screen{1100, 820, false}), s.open(phone)
	s.send("invoices", "invoice", 12, time.Hour, nil)
	s.send("payments", "payment", 40, 90*time.Second, nil)
	s.receive("payments", 40)
	samples := 3
	if *update {
		samples = 88 // the graphs are full then
	}
	i := 0
	s.send("orders", "order-first", samples, time.Minute, func(m *azservicebus.Message) {
		ttl := time.Duration(float64(time.Minute) * math.Exp(float64(i*37%100+i*61%100)/50)) // most are in the middle
		m.TimeToLive = &ttl
		i++
	})
	for i := range samples {
		s.send("orders", fmt.Sprintf("order-%02d", i), 1+i%3, time.Duration(150+i*53%130)*time.Millisecond, nil)
		if i%4 == 0 {
			s.send("events", fmt.Sprintf("event-%02d", i), 1, 200*time.Millisecond, nil)
		}
		s.receive("orders", 1) // one of the first
		time.Sleep(150 * time.Millisecond)
		s.proc.Dashboard().Sample()
	}
	s.dead("orders", samples)
	for _, p := range []struct {
		path, shows, name string
		tab               *tab
	}{
		{"entity?name=orders", "would be met", "dashboard-entity.png", large},
		{"", "missed in 15 minutes", "dashboard-overview.png", large},
		{"deadletters?entity=orders&q=order-0", "order-01-0001", "dashboard-deadletters.png", large},
		{"preview?action=resubmit&entity=orders&q=order-0", "dead letters of orders", "dashboard-preview.png", large},
		{"", "missed in 15 minutes", "dashboard-phone.png", small},
	} {
		p.tab.visit(p.path)
		p.tab.shows("main", p.shows)
		if p.path == "" || p.path[0] == 'e' {
			p.tab.shows("#status", "Live")
		}
		p.tab.run(chromedp.Sleep(300 * time.Millisecond)) // what fades has faded
		p.tab.picture(p.name)
	}
}

// The demo on the dashboard. For its picture the test waits until messages of the other queue are
// overdue.
func TestTheDemo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	shown, done := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := demo.RunWeb(ctx, 300, demo.NoScreen{}, io.Discard, func(url, _ string) { shown <- url })
		done <- err
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil && !strings.Contains(err.Error(), "interrupted") {
			t.Error(err)
		}
	}()
	url := <-shown
	tab := (&scene{T: t, base: strings.TrimSuffix(url, "/dashboard/"), root: "/dashboard/"}).open(screen{1100, 820, true})
	tab.visit("")
	tab.shows("#demo", "Watched by Overdue")
	tab.shows("#demo", "Left to itself")
	tab.shows("#status", "Live")
	tab.accessible("the demo")
	if *update {
		time.Sleep(17 * time.Second)
		tab.wait(`document.querySelector("#demo .bad").innerText.includes("overdue")`)
	}
	tab.picture("dashboard-demo.png")
}
