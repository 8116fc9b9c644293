// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// peerResults are what `make peers` has written to peers.json.
type peerResults struct {
	Outstanding     int
	DeadlineRangeMs [2]int64
	CPUs            int
	LoadAverage     string
	Peers           []struct {
		Name, How, Version string
		LagMs              struct{ P50, P99, Max float64 }
		Early, Lost, Twice int
		EarliestMs         float64
	}
}

const (
	peersPage    = root + "/docs/reference/peers.md"
	peersPicture = root + "/docs/start/peers.svg"
	peersBegin   = "<!-- peers:begin -->\n"
	peersEnd     = "<!-- peers:end -->"
)

func TestThePageAndThePictureOfPeersAgreeWithTheirResults(t *testing.T) {
	text, err := os.ReadFile("peers.json")
	if err != nil {
		t.Fatal(err)
	}
	var r peerResults
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("peers.json: %v", err)
	}
	if len(r.Peers) < 2 {
		t.Fatalf("peers.json has %d rows, want those of all peers", len(r.Peers))
	}
	page, err := os.ReadFile(peersPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), peersBegin)
	_, after, ends := strings.Cut(rest, peersEnd)
	if !begins || !ends {
		t.Fatalf("%s has no block from %q to %q", peersPage, peersBegin, peersEnd)
	}
	for file, want := range map[string]string{
		peersPage:    before + peersBegin + "\n" + r.table() + "\n" + peersEnd + after,
		peersPicture: r.picture(),
	} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s does not agree with peers.json (%v); run `make docs`", file, err)
		}
	}
}

// table has a row for each peer.
func (r *peerResults) table() string {
	var b strings.Builder
	b.WriteString("| | lag p50 | p99 | at most | early | lost | twice | version |\n|---|---|---|---|---|---|---|---|\n")
	for _, p := range r.Peers {
		early := fmt.Sprint(p.Early)
		if p.Early > 0 {
			early += ", by up to " + span(p.EarliestMs)
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %s | %d | %d | %s |\n", p.Name, p.How, span(p.LagMs.P50),
			span(p.LagMs.P99), span(p.LagMs.Max), early, p.Lost, p.Twice, p.Version)
	}
	return b.String() + "\n" + r.conditions() + "\n"
}

// conditions says what was measured, and where.
func (r *peerResults) conditions() string {
	return fmt.Sprintf("%s deadlines outstanding, %d to %d s after each was handed over, on %d processors for everything, with a load average of %s from other work before.",
		thousands(r.Outstanding), r.DeadlineRangeMs[0]/1000, r.DeadlineRangeMs[1]/1000, r.CPUs, r.LoadAverage)
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// span is a time for people, with two digits that count.
func span(ms float64) string {
	if math.Abs(ms) >= 1000 {
		return short(ms/1000) + " s"
	}
	return short(ms) + " ms"
}

// Measures of the picture.
const (
	pictureWidth, rowHeight, plotTop = 720, 30, 46
	plotLeft, plotRight              = 190, 640
	leastMs, mostMs                  = 0.1, 100_000.0 // of the axis
)

// across is where a lag lies on the axis, which is logarithmic.
func across(ms float64) float64 {
	ms = min(max(ms, leastMs), mostMs)
	return plotLeft + (plotRight-plotLeft)*math.Log10(ms/leastMs)/math.Log10(mostMs/leastMs)
}

// picture has a row for each peer: a bar from p50 to p99, and a line on to the greatest lag. It has
// colours for dark pages and for light ones.
func (r *peerResults) picture() string {
	var b strings.Builder
	bottom := plotTop + rowHeight*len(r.Peers)
	height := bottom + 66
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13" role="img" aria-label="Lag behind the deadline of each peer: p50, p99 and the greatest, on a logarithmic axis">
<style>.page{fill:#fff}.text{fill:#24292f}.quiet{fill:#57606a}.grid{stroke:#d0d7de}.bar{fill:#0969da}.tail{stroke:#0969da}.ours{fill:#1a7f37}.ourTail{stroke:#1a7f37}
@media (prefers-color-scheme: dark){.page{fill:#0d1117}.text{fill:#e6edf3}.quiet{fill:#9198a1}.grid{stroke:#3d444d}.bar{fill:#4493f8}.tail{stroke:#4493f8}.ours{fill:#3fb950}.ourTail{stroke:#3fb950}}</style>
<rect class="page" width="%d" height="%d"/>
<text class="text" x="16" y="24">Lag behind the deadline: p50 to p99 as a bar, the line ends at the greatest</text>
`, pictureWidth, height, pictureWidth, height, pictureWidth, height)
	for ms := leastMs; ms <= mostMs*1.01; ms *= 10 {
		x := across(ms)
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%.0f %dV%d\"/><text class=\"quiet\" x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			x, plotTop-8, bottom, x, bottom+18, span(ms))
	}
	for i, p := range r.Peers {
		bar, tail := "bar", "tail"
		if strings.HasPrefix(p.Name, "overdue") {
			bar, tail = "ours", "ourTail"
		}
		y := plotTop + rowHeight*i + rowHeight/2
		from, to := across(p.LagMs.P50), across(p.LagMs.P99)
		note := span(p.LagMs.P99)
		if p.Early > 0 {
			note += ", early too"
		}
		fmt.Fprintf(&b, `<text class="text" x="%d" y="%d" text-anchor="end">%s</text><path class="%s" stroke-width="2" d="M%.1f %dH%.1f"/><rect class="%s" x="%.1f" y="%d" width="%.1f" height="12" rx="2"/><text class="quiet" x="%.1f" y="%d" font-size="11">%s</text>
`, plotLeft-12, y+4, p.Name, tail, to, y, across(p.LagMs.Max), bar, from, y-6, max(3, to-from), across(p.LagMs.Max)+6, y+4, note)
	}
	what, where, _ := strings.Cut(r.conditions(), ", on ")
	for i, line := range []string{what + ",", "on " + where} {
		fmt.Fprintf(&b, "<text class=\"quiet\" x=\"16\" y=\"%d\" font-size=\"11\">%s</text>\n", bottom+42+16*i, line)
	}
	return b.String() + "</svg>\n"
}
