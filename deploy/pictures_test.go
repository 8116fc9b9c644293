// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/freeport"
)

var pictures = flag.Bool("pictures", false, "draw the pictures of the dashboards anew, from a run of some minutes")

const pictureFolder = "../docs/operate/"

func pictureOf(d *dashboard) string { return strings.TrimSuffix(d.file, ".json") + ".svg" }

// The docs show each dashboard with all its panels.
func TestPicturesShowEveryPanel(t *testing.T) {
	if *pictures {
		drawPictures(t)
	}
	page, err := os.ReadFile(pictureFolder + "monitor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dashboards {
		name := pictureOf(&d)
		if !strings.Contains(string(page), "]("+name+")") {
			t.Errorf("docs/operate/monitor.md does not show %s", name)
		}
		picture, err := os.ReadFile(pictureFolder + name)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, p := range d.panels {
			want = append(want, ">"+html.EscapeString(p.title)+"<")
		}
		for _, w := range want {
			if !strings.Contains(string(picture), w) {
				t.Errorf("%s lacks the panel %s; draw it: go test ./deploy -run TestPictures -pictures", name, w)
			}
		}
		if n := strings.Count(string(picture), `class="title"`); n != len(want) {
			t.Errorf("%s has %d panels, want %d", name, n, len(want))
		}
	}
}

const (
	pictureSpan = 5 * time.Minute
	pictureStep = 2 * time.Second
)

// drawPictures runs the program under a load for a while, asks Prometheus for what the panels ask,
// and draws the answers.
func drawPictures(t *testing.T) {
	dir := t.TempDir()
	amqp := freeport.Address(t)
	overdue := startOverdue(t, fmt.Sprintf("onMonitorDown: pass\njournal: {directory: %q}\nalerts: [{webhook: {url: \"http://%s/\"}}]\n", dir, serveNothing(t)), amqp)
	addr := startPrometheus(t, dir, overdue.admin)
	began := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), pictureSpan)
	defer stop()
	// The consumer is away in the third minute.
	go consume(ctx, t, amqp, began.Add(2*time.Minute), began.Add(3*time.Minute))
	for n := 0; ctx.Err() == nil; n++ {
		overdue.send(t, fmt.Sprint("order-", n), 8*time.Second)
		if n%5 == 0 {
			if status := overdue.post(t, "events", fmt.Sprint("event-", n), 5*time.Second); status != http.StatusCreated {
				t.Fatalf("send to the topic: %d", status)
			}
		}
		time.Sleep(time.Duration(float64(200*time.Millisecond) * (0.5 + rand.Float64() + 0.4*math.Sin(time.Since(began).Seconds()/20))))
	}
	for _, d := range dashboards {
		if err := os.WriteFile(pictureFolder+pictureOf(&d), draw(t, addr, &d, began), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// serveNothing is the address of a webhook that takes all events.
func serveNothing(t *testing.T) string {
	addr := freeport.Address(t)
	server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.ListenAndServe() }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	return addr
}

// consume receives and completes orders, a little after they came, but for a while.
func consume(ctx context.Context, t *testing.T, amqp string, away, back time.Time) {
	client, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://"+amqp+";SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true", nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = client.Close(context.Background()) }()
	r, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		if now := time.Now(); now.After(away) && now.Before(back) {
			time.Sleep(time.Until(back))
		}
		ms, err := r.ReceiveMessages(ctx, 5, nil)
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		time.Sleep(time.Duration(rand.Float64() * float64(2*time.Second)))
		for _, m := range ms {
			_ = r.CompleteMessage(ctx, m, nil) // it may have expired meanwhile, as in life
		}
	}
}

type series struct {
	legend string
	points [][2]float64 // time, value
}

func (s series) highest() (v float64) {
	for _, p := range s.points {
		v = max(v, math.Abs(p[1]))
	}
	return v
}

// askRange asks Prometheus for what a graph shows.
func askRange(t *testing.T, addr, expr, legend string, from time.Time) (all []series) {
	t.Helper()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	q := url.Values{"query": {expr}, "start": {fmt.Sprint(from.Unix())}, "end": {fmt.Sprint(time.Now().Unix())}, "step": {fmt.Sprint(pictureStep.Seconds())}}
	if err := getJSON("http://"+addr+"/api/v1/query_range?"+q.Encode(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	for _, r := range answer.Data.Result {
		s := series{legend: legend}
		for name, value := range r.Metric {
			s.legend = strings.ReplaceAll(s.legend, "{{"+name+"}}", value)
		}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			if !math.IsNaN(value) && !math.IsInf(value, 0) {
				s.points = append(s.points, [2]float64{at, value})
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b series) int { return strings.Compare(a.legend, b.legend) })
	return all
}

var colors = []string{"#3b7dd8", "#e0752d", "#3a9d5d", "#c4162a", "#8f5fbf", "#2aa198", "#b58900", "#7f8c8d", "#d6589f", "#5b6f2a"}

const pictureStyle = `<style>
text { font-family: system-ui, sans-serif; font-size: 11px; fill: #444 }
.title { font-size: 13px; font-weight: 600; fill: #111 } .value { font-size: 26px; font-weight: 600; fill: #1b66c9 }
.box { fill: #fff; stroke: #d5d8dc } .axis { stroke: #e6e8eb } path { fill: none; stroke-width: 1.5 }
</style>
`

// draw draws a dashboard as an SVG, in the places that Grafana gives the panels.
func draw(t *testing.T, addr string, d *dashboard, from time.Time) []byte {
	t.Helper()
	var layout struct {
		Panels []struct{ GridPos struct{ X, Y, W, H int } }
	}
	if err := json.Unmarshal(d.json(t), &layout); err != nil {
		t.Fatal(err)
	}
	const cell, top = 50, 40
	last := layout.Panels[len(layout.Panels)-1].GridPos
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 %d" role="img" aria-label="%s">`+"\n"+pictureStyle, (last.Y+last.H)*24+top+8, html.EscapeString(d.title))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#f4f5f7"/><text x="12" y="25"><tspan font-weight="600">%s</tspan>: not a screenshot of Grafana. Drawn from what Prometheus answers to the queries of the panels, in a run of five minutes without a consumer in the third.</text>`+"\n", html.EscapeString(d.title))
	variables := strings.NewReplacer("$instance", ".*", "$entity", "orders", "$__rate_interval", "20s")
	for i, p := range d.panels {
		g := layout.Panels[i].GridPos
		x, y, w, h := float64(g.X*cell+4), float64(g.Y*24+top+4), float64(g.W*cell-8), float64(g.H*24-8)
		fmt.Fprintf(&b, `<rect class="box" x="%g" y="%g" width="%g" height="%g" rx="4"/><text class="title" x="%g" y="%g">%s</text>`+"\n", x, y, w, h, x+10, y+18, html.EscapeString(p.title))
		var all []series
		for _, q := range p.queries {
			all = append(all, askRange(t, addr, variables.Replace(q.expr), q.legend, from)...)
		}
		all = slices.DeleteFunc(all, func(s series) bool { return len(s.points) == 0 })
		switch {
		case len(all) == 0:
			fmt.Fprintf(&b, `<text x="%g" y="%g">no data in this run</text>`+"\n", x+w/2-50, y+h/2)
		case p.stat:
			s := all[0]
			fmt.Fprintf(&b, `<text class="value" x="%g" y="%g">%s</text><text x="%g" y="%g">%s</text>`+"\n", x+10, y+60, shown(s.points[len(s.points)-1][1], p.unit), x+10, y+h-8, html.EscapeString(s.legend))
		default:
			graph(&b, all, p.unit, from, x+56, y+28, w-70, h-64)
		}
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// graph draws series into a rectangle, with an axis on the left and the legend below.
func graph(b *strings.Builder, all []series, unit string, from time.Time, x, y, w, h float64) {
	low, high := 0.0, 0.0
	for _, s := range all {
		for _, p := range s.points {
			low, high = min(low, p[1]), max(high, p[1])
		}
	}
	if high == low {
		high = low + 1
	}
	for i := range 3 {
		v := low + (high-low)*float64(i)/2
		at := y + h - h*float64(i)/2
		fmt.Fprintf(b, `<line class="axis" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", x, x+w, at, at, x-6, at+4, shown(v, unit))
	}
	legend := x
	// The legend has room for a few: those that show something come first.
	slices.SortStableFunc(all, func(a, b series) int { return cmp.Compare(b.highest(), a.highest()) })
	for i, s := range all {
		color := colors[i%len(colors)]
		var path strings.Builder
		for j, p := range s.points {
			command := "L"
			if j == 0 || p[0]-s.points[j-1][0] > 2*pictureStep.Seconds() {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, x+w*(p[0]-float64(from.Unix()))/pictureSpan.Seconds(), y+h-h*(p[1]-low)/(high-low))
		}
		fmt.Fprintf(b, `<path d="%s" stroke="%s"/>`, path.String(), color)
		if i < 8 && legend < x+w-60 {
			fmt.Fprintf(b, `<rect x="%.0f" y="%.1f" width="10" height="3" fill="%s"/><text x="%.0f" y="%.1f">%s</text>`, legend, y+h+20, color, legend+14, y+h+25, html.EscapeString(s.legend))
			legend += 30 + 6.2*float64(len(s.legend))
		}
		b.WriteString("\n")
	}
}

// shown is a value as Grafana shows it in that unit.
func shown(v float64, unit string) string {
	text := func(v float64) string { // three digits, or all of a whole number
		digits := 0
		for u := math.Abs(v); u < 99.95 && digits < 3 && math.Abs(v-math.Round(v*math.Pow10(digits))/math.Pow10(digits)) > 1e-9; u *= 10 {
			digits++
		}
		return strconv.FormatFloat(v, 'f', digits, 64)
	}
	switch {
	case unit == "s" && v != 0 && math.Abs(v) < 1:
		return text(v*1000) + " ms"
	case unit == "s":
		return text(v) + " s"
	case unit == "bytes":
		return strconv.FormatFloat(v/(1<<20), 'f', 1, 64) + " MiB"
	case unit == "percentunit":
		return text(v*100) + " %"
	case unit == "cps":
		return text(v) + "/s"
	}
	return text(v)
}

// startPrometheus starts Prometheus with the rules. It scrapes target every second.
func startPrometheus(t *testing.T, dir, target string) (addr string) {
	t.Helper()
	rules, err := filepath.Abs("prometheus/overdue.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: overdue
    static_configs: [{targets: [%q]}]
`, rules, target))
	addr = freeport.Address(t)
	start(t, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	return addr
}
