// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/internal/testing/generated"
)

var update = flag.Bool("update", false, "write the pictures and tables of pages instead of comparing them")

// A picture is curves on two logarithmic axes.
type picture struct {
	file, says     string // says: the text for readers who do not see it
	across, up     string // what the axes are
	x, y           [2]float64
	xTicks, yTicks map[float64]string
	curves         []drawn
	levels         map[float64]string // horizontal lines
	dots           []point            // measured
}

// drawn is a curve of a picture, its name written at one of its points.
type drawn struct {
	name, color string
	at          float64 // where the name stands
	above       float64 // by how much, in pixels
	f           func(x float64) float64
}

const left, top, width, height = 92, 24, 590, 220

func (p *picture) spot(x, y float64) (px, py float64) {
	share := func(v float64, of [2]float64) float64 { return math.Log(v/of[0]) / math.Log(of[1]/of[0]) }
	return left + width*share(x, p.x), top + height*(1-share(y, p.y))
}

// svg draws the picture.
func (p *picture) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" width="720" height="300" font-family="sans-serif" font-size="13" role="img" aria-label="%s">
<rect width="720" height="300" fill="#ffffff"/>
`, p.says)
	for _, v := range sorted(p.xTicks) {
		x, _ := p.spot(v, p.y[0])
		fmt.Fprintf(&b, `<path d="M%.0f %dV%d" stroke="#eaeef2"/><text x="%.0f" y="%d" fill="#57606a" text-anchor="middle">%s</text>`+"\n", x, top, top+height, x, top+height+18, p.xTicks[v])
	}
	for _, v := range sorted(p.yTicks) {
		_, y := p.spot(p.x[0], v)
		fmt.Fprintf(&b, `<path d="M%d %.0fH%d" stroke="#eaeef2"/><text x="%d" y="%.0f" fill="#57606a" text-anchor="end">%s</text>`+"\n", left, y, left+width, left-6, y+4, p.yTicks[v])
	}
	fmt.Fprintf(&b, `<text x="%d" y="292" fill="#57606a" text-anchor="middle">%s</text>`+"\n", left+width/2, p.across)
	fmt.Fprintf(&b, `<text x="16" y="%d" fill="#57606a" transform="rotate(-90 16 %d)" text-anchor="middle">%s</text>`+"\n", top+height/2, top+height/2, p.up)
	for _, v := range sorted(p.levels) {
		_, y := p.spot(p.x[0], v)
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#cf222e" stroke-dasharray="5 4"/><text x="%d" y="%.1f" fill="#cf222e">%s</text>`+"\n", left, y, left+width, left+6, y-5, p.levels[v])
	}
	for _, c := range p.curves {
		path := ""
		for i := range 121 {
			x := p.x[0] * math.Pow(p.x[1]/p.x[0], float64(i)/120)
			y := c.f(x)
			if y < p.y[0] || y > p.y[1] {
				continue
			}
			px, py := p.spot(x, y)
			path += fmt.Sprintf("L%.1f %.1f", px, py)
		}
		x, y := p.spot(c.at, c.f(c.at))
		fmt.Fprintf(&b, `<path d="M%s" fill="none" stroke="%s" stroke-width="2.5"/><text x="%.0f" y="%.0f" fill="%s">%s</text>`+"\n", path[1:], c.color, x, y-c.above, c.color, c.name)
	}
	for _, d := range p.dots {
		x, y := p.spot(d.rate, d.cost)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="#ffffff" stroke="#24292f" stroke-width="2"/>`+"\n", x, y)
	}
	return b.String() + "</svg>\n"
}

func sorted(ticks map[float64]string) (all []float64) {
	for v := range ticks {
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

func decades(from, to int) map[float64]string {
	all := map[float64]string{}
	for e := from; e <= to; e++ {
		v := math.Pow(10, float64(e))
		switch {
		case v >= 1:
			all[v] = count(v)
			if v < 10 {
				all[v] = "1"
			}
		default:
			all[v] = fmt.Sprint(v)
		}
	}
	return all
}

// measured are the operations of a message as the last run of all measurements has counted them.
func measured(t *testing.T) (met, missed []point) {
	t.Helper()
	text, err := os.ReadFile("../../../test/bench/results.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Results struct {
			Cost struct {
				Cases []struct{ Asked, OperationsPerMessage float64 }
			}
			Expire struct {
				Cases []struct {
					Outstanding, Consumers, OperationsPerMessage float64
					Drained                                      bool
				}
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Results.Cost.Cases {
		met = append(met, point{c.Asked, c.OperationsPerMessage})
	}
	for _, c := range file.Results.Expire.Cases {
		if c.Consumers == 0 && !c.Drained {
			missed = append(missed, point{c.Outstanding / 10, c.OperationsPerMessage}) // in 10 s
		}
	}
	return met, missed
}

// Pages quote the figures of the plan.
func TestPagesQuoteThePlan(t *testing.T) {
	generated.Check(t, "../../../docs/operate/capacity.md", *update, map[string]string{"figures": figuresTable()})
	generated.Check(t, "../../../docs/start/when-not-to-use.md", *update, map[string]string{"costs": costsTable(t)})
}

// figuresTable is what was measured.
func figuresTable() string {
	var b strings.Builder
	b.WriteString("| | messages a second on one queue | operations a message, beyond its own |\n|---|---|---|\n")
	for _, row := range []struct {
		name string
		curve
	}{{"met, a companion for each message", metEach}, {"met, slot companions", metSlot}, {"missed", missedOperations}} {
		var rates, costs []string
		for _, p := range row.curve {
			rates, costs = append(rates, count(p.rate)), append(costs, fmt.Sprint(p.cost))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.name, strings.Join(rates, "; "), strings.Join(costs, "; "))
	}
	fmt.Fprintf(&b, "\nA companion takes %d bytes of the monitor queue, and a slot companion %d.\n", eachBytes, slotBytes)
	return b.String()
}

// costsTable is the load that a namespace of the Standard tier carries, by the number of queues.
func costsTable(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| queues that share the load | messages a second without Overdue | with Overdue | operations a message |\n|---|---|---|---|\n")
	for _, queues := range []int{1, 12} {
		l := load
		l.Queues, l.Rate = queues, 1
		p, err := Of(l)
		if err != nil {
			t.Fatal(err)
		}
		l.Rate = p.StopsAt
		atLimit, err := Of(l)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %.2g |\n", queues, count(creditsPerSecond/(p.App/p.Load.Rate)), count(p.StopsAt), (atLimit.App+atLimit.Overdue())/l.Rate)
	}
	return b.String()
}

func TestPicturesAreFresh(t *testing.T) {
	premium := func(l Load) *Plan {
		l.Tier = Premium
		p, err := Of(l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one := func(rate, missed float64, companions string) *Plan {
		return premium(Load{Rate: rate, Deadline: 30 * time.Second, Missed: missed, Queues: 1, Senders: 1, MonitorQueues: 1, Companions: companions})
	}
	waiting := func(n float64, monitorQueues int) float64 {
		return premium(Load{Rate: n / 3600, Deadline: time.Hour, Queues: 200, Senders: 1, MonitorQueues: monitorQueues, Companions: Each}).MonitorQueueSize
	}
	senders := func(n float64, rate float64) float64 {
		return premium(Load{Rate: rate, Deadline: 30 * time.Second, Queues: 1, Senders: max(int(math.Round(n)), 1), MonitorQueues: 1, Companions: Auto}).Written
	}
	met, missed := measured(t)
	const green, blue, brown = "#1a7f37", "#0969da", "#9a6700"
	for _, p := range []picture{
		{
			file: "capacity-operations.svg", says: "Operations that one message costs beyond its own, by the rate of its queue. They fall as the rate rises, for slots from 0.4 to 0.004.",
			across: "messages a second on one queue", up: "operations a message", x: [2]float64{10, 10_000}, y: [2]float64{0.001, 10},
			xTicks: decades(1, 4), yTicks: decades(-3, 1), dots: slices.Concat(met, missed),
			curves: []drawn{
				{"met, a companion for each", blue, 30, -34, func(x float64) float64 { return one(x, 0, Each).Met / x }},
				{"met, slots", green, 120, 10, func(x float64) float64 { return one(x, 0, Slot).Met / x }},
				{"missed", brown, 1600, 12, func(x float64) float64 { return one(x, 1, Auto).Missed / x }},
			},
		},
		{
			file: "capacity-size.svg", says: "Size of the fullest monitor queue by the number of deadlines that are outstanding, with one, four and sixteen monitor queues, and the sizes that a queue can have.",
			across: "outstanding deadlines, a companion for each, on 200 queues", up: "fullest monitor queue", x: [2]float64{100_000, 1_000_000_000}, y: [2]float64{1 << 20, 1 << 40},
			xTicks: map[float64]string{1e5: "100,000", 1e6: "a million", 1e7: "10 million", 1e8: "100 million", 1e9: "a billion"}, yTicks: map[float64]string{1 << 20: "1 MiB", 1 << 25: "32 MiB", 1 << 30: "1 GiB", 1 << 35: "32 GiB", 1 << 40: "1 TiB"},
			levels: map[float64]string{1 << 30: "1 GB: the least", 5 << 30: "5 GB", 80 << 30: "80 GB: Premium"},
			curves: []drawn{
				{"one", brown, 50_000_000, 12, func(x float64) float64 { return waiting(x, 1) }},
				{"four", blue, 200_000_000, 7, func(x float64) float64 { return waiting(x, 4) }},
				{"sixteen monitor queues", green, 60_000_000, -30, func(x float64) float64 { return waiting(x, 16) }},
			},
		},
		{
			file: "capacity-senders.svg", says: "Companions a second for one queue, by the number of proxies that send to it. Ten for each proxy, until each of them has less than 100 messages a second; then one for each message.",
			across: "proxies that send to one queue", up: "companions a second", x: [2]float64{1, 100}, y: [2]float64{5, 10_000},
			xTicks: map[float64]string{1: "1", 2: "2", 5: "5", 10: "10", 20: "20", 50: "50", 100: "100"}, yTicks: map[float64]string{10: "10", 100: "100", 1000: "1,000", 10_000: "10,000"},
			curves: []drawn{
				{"5,000 messages a second", brown, 11, -22, func(x float64) float64 { return senders(x, 5000) }},
				{"1,000 messages a second", blue, 13, 8, func(x float64) float64 { return senders(x, 1000) }},
				{"300 messages a second", green, 3.6, 8, func(x float64) float64 { return senders(x, 300) }},
			},
		},
	} {
		file := "../../../docs/operate/" + p.file
		want := p.svg()
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("docs/operate/%s is stale (%v); run `make docs`", p.file, err)
		}
	}
}
