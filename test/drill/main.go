// SPDX-License-Identifier: Apache-2.0

// Command drill breaks a running Overdue in the ways that an operator is called for, and writes
// down by the clock what fired, when, and what the page said: `make drill`.
//
// Each case has a site of its own: `overdue broker`, `proxy` and `monitor`, Prometheus with the
// rules of deploy/prometheus, and an app that sends a message every other second that nobody
// receives. All share one Alertmanager, whose pages come to this program. The cases run at the same
// time, so the drill takes about a quarter of an hour. It needs the Debian packages prometheus,
// prometheus-alertmanager and redis-server, and root for the disk that is full.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	warmUp = 60 * time.Second
	// recovery bounds the wait for the end of all alerts, once a fault is over.
	recovery = 7 * time.Minute
	// retries is how long a sink that was away may wait for its events, after the end of the app.
	retries = 6 * time.Minute
)

// A drill is one thing that goes wrong.
type drill struct {
	name     string
	settings string            // more settings of proxy and monitor
	hold     time.Duration     // from the fault to its end
	prepare  func(*site) error // before any program is started
	settled  func(*site) error // once the broker is ready
	inject   func(*site) error
	restore  func(*site) error
	want     []string // alerts that must fire
	atMost   time.Duration
	lasts    bool // the fault is there from the start, and stays
}

func main() {
	only := flag.String("run", "", "only the cases with these names, separated by commas")
	keep := flag.String("dir", "", "keep the logs there instead of in a folder that is removed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, dir string) error {
	if dir == "" {
		temporary, err := os.MkdirTemp("", "overdue-drill-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		dir = temporary
	}
	h, err := newHouse(ctx, dir)
	if err != nil {
		return err
	}
	defer h.stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var reports []*report
	for _, d := range drills {
		if only != "" && !slices.Contains(strings.Split(only, ","), d.name) {
			continue
		}
		wg.Go(func() {
			r := &report{drill: d}
			r.err = play(ctx, h, d, r)
			mu.Lock()
			reports = append(reports, r)
			mu.Unlock()
			fmt.Fprintf(os.Stderr, "%s: done\n", d.name)
		})
	}
	wg.Wait()
	slices.SortFunc(reports, func(a, b *report) int { return strings.Compare(a.drill.name, b.drill.name) })
	failed := 0
	for _, r := range reports {
		failed += r.print(os.Stdout)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cases went wrong", failed, len(reports))
	}
	return nil
}

// play runs one case.
func play(ctx context.Context, h *house, d drill, r *report) error {
	s, err := newSite(ctx, h, d)
	if s != nil {
		defer s.stop()
	}
	if err != nil {
		return err
	}
	if err := sleep(ctx, warmUp); err != nil {
		return err
	}
	r.before, r.at = h.pagesOf(d.name), time.Now()
	if d.lasts {
		r.before, r.at = nil, s.app.began
	} else if err := d.inject(s); err != nil {
		return fmt.Errorf("inject: %w", err)
	}
	if err := sleep(ctx, d.hold); err != nil {
		return err
	}
	r.health = s.outbound()
	r.restored = time.Now()
	if !d.lasts {
		if err := d.restore(s); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	for end := time.Now().Add(recovery); time.Now().Before(end) && !d.lasts; {
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
		if time.Since(r.restored) > 30*time.Second && len(firing(h.pagesOf(d.name))) == 0 {
			break
		}
	}
	s.app.end()
	for end := time.Now().Add(retries); time.Now().Before(end) && s.app.missing() > 0; {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	r.pages, r.sent, r.refused, r.missing = h.pagesOf(d.name), s.app.sent(), s.app.refused(), s.app.missing()
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// firing are the alerts that fire, by the latest page of each. One that only says that deadlines
// were missed is meant to fire: nobody receives the messages.
func firing(pages []page) (all []string) {
	last := map[string]string{}
	for _, p := range pages {
		last[p.Alert] = p.Status
	}
	for name, status := range last {
		if status == "firing" && name != expected {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

const expected = "OverdueDeadlineMissed"

// report is what became of a case.
type report struct {
	drill                  drill
	err                    error
	at, restored           time.Time
	before, pages          []page
	health                 string
	sent, refused, missing int
}

// print writes the report, and returns 1 if the case went wrong.
func (r *report) print(w *os.File) int {
	fmt.Fprintf(w, "\n## %s\n\n", r.drill.name)
	if r.err != nil {
		fmt.Fprintf(w, "not finished: %v\n", r.err)
		return 1
	}
	fmt.Fprintf(w, "fault at %s, over at %s; %d messages accepted, %d sends refused, %d missed deadlines not notified\n\n",
		r.at.UTC().Format(time.TimeOnly), r.restored.UTC().Format(time.TimeOnly), r.sent, r.refused, r.missing)
	fmt.Fprintf(w, "/healthz/outbound of the proxy: %s\n\n", strings.Join(strings.Split(strings.TrimSpace(r.health), "\n"), "; "))
	fmt.Fprintln(w, "| after the fault | alert | status | page | runbook |\n|---|---|---|---|---|")
	wrong := 0
	fired := map[string]time.Duration{}
	for _, p := range r.pages[len(r.before):] {
		after := p.Time.Sub(r.at).Round(time.Second)
		if p.Alert == expected {
			continue
		}
		if _, ok := fired[p.Alert]; !ok && p.Status == "firing" {
			fired[p.Alert] = after
		}
		fmt.Fprintf(w, "| %v | %s | %s | %s | %s |\n", after, p.Alert, p.Status, p.Summary, p.Runbook)
	}
	for _, name := range r.drill.want {
		switch after, ok := fired[name]; {
		case !ok:
			fmt.Fprintf(w, "\nwrong: %s has not fired\n", name)
			wrong = 1
		case after > r.drill.atMost:
			fmt.Fprintf(w, "\nwrong: %s has fired after %v, want %v at most\n", name, after, r.drill.atMost)
			wrong = 1
		}
	}
	if early := firing(r.before); len(early) > 0 {
		fmt.Fprintf(w, "\nwrong: %v fired before the fault\n", early)
		wrong = 1
	}
	if still := firing(r.pages); len(still) > 0 && !r.drill.lasts {
		fmt.Fprintf(w, "\nwrong: %v still fire %v after the fault\n", still, recovery)
		wrong = 1
	}
	if r.missing > 0 {
		fmt.Fprintf(w, "\nwrong: %d missed deadlines were not notified\n", r.missing)
		wrong = 1
	}
	return wrong
}

// page is an alert as Alertmanager has sent it.
type page struct {
	Time                            time.Time
	Site                            string
	Alert, Status, Summary, Runbook string
}

// decodePages reads the webhook of Alertmanager.
func decodePages(d *json.Decoder) (all []page, err error) {
	var body struct {
		Alerts []struct {
			Status              string
			Labels, Annotations map[string]string
		}
	}
	if err := d.Decode(&body); err != nil {
		return nil, err
	}
	for _, a := range body.Alerts {
		all = append(all, page{
			Time: time.Now(), Site: a.Labels["site"], Alert: a.Labels["alertname"], Status: a.Status,
			Summary: a.Annotations["summary"], Runbook: a.Annotations["runbook_url"],
		})
	}
	return all, nil
}
