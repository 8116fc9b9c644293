// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

var record = flag.String("record", "", "the program whose demo is run and kept in demo.json")

// A demoRun is one run of `overdue demo` on a terminal, as `make pictures` keeps it in demo.json.
type demoRun struct {
	Version     string
	CPUs        int
	LoadAverage string
	Frames      []demoFrame
	Screen      [][]piece // the last screen, by rows
}

// A demoFrame is what the screen showed at one moment.
type demoFrame struct {
	Seconds                                            float64
	WatchedWaiting, WatchedDead, LazyWaiting, LazyDead int
}

// A piece is text in one colour.
type piece struct{ Text, Color string }

const (
	demoPicture = root + "/docs/start/demo.svg"
	lagPicture  = root + "/docs/start/lag.svg"
)

func TestThePicturesOfTheDemoShowARun(t *testing.T) {
	if *record != "" {
		recordDemo(t, *record)
	}
	text, err := os.ReadFile("demo.json")
	if err != nil {
		t.Fatal(err)
	}
	var r demoRun
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("demo.json: %v", err)
	}
	last := r.Frames[len(r.Frames)-1]
	if n := last.WatchedDead; len(r.Frames) < 50 || n == 0 || last.LazyDead != n || r.before().LazyDead != 0 || r.before().WatchedDead != n {
		t.Fatalf("demo.json has %d frames and ends with %+v after %+v, want a run in which both queues end empty, one at the deadlines", len(r.Frames), last, r.before())
	}
	for file, want := range map[string]string{demoPicture: r.screen(), lagPicture: r.lag()} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s does not agree with demo.json (%v); run `make docs`", file, err)
		}
	}
}

// before is the last frame before somebody received.
func (r *demoRun) before() demoFrame {
	for i := len(r.Frames) - 1; i >= 0; i-- {
		if r.Frames[i].LazyDead == 0 {
			return r.Frames[i]
		}
	}
	return demoFrame{}
}

// recordDemo runs the demo on a terminal of 80 columns, which util-linux makes.
func recordDemo(t *testing.T, program string) {
	t.Helper()
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.CommandContext(t.Context(), program, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "script", "-qec", "stty cols 80 rows 50 && TERM=xterm NO_COLOR= exec '"+program+"' demo", "/dev/null").CombinedOutput()
	if err != nil {
		t.Fatalf("the demo: %v\n%s", err, out)
	}
	r := demoRun{Version: strings.Fields(string(version))[1], CPUs: runtime.NumCPU(), LoadAverage: strings.Fields(string(load))[0]}
	r.Version = strings.TrimSuffix(r.Version, ",")
	if r.Screen, err = terminalShows(string(out)); err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(escapes.ReplaceAllString(string(out), ""), "\r", "")
	for _, m := range frames.FindAllStringSubmatch(plain, -1) {
		var f demoFrame
		if _, err := fmt.Sscan(strings.Join(m[1:], " "), &f.Seconds, &f.WatchedWaiting, &f.WatchedDead, &f.LazyWaiting, &f.LazyDead); err != nil {
			t.Fatalf("%q: %v", m, err)
		}
		r.Frames = append(r.Frames, f)
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("demo.json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	escapes = regexp.MustCompile(`\x1b\[\d*[A-Za-z]`)
	frames  = regexp.MustCompile(`([\d.]+) s after the first send\n` +
		`watched by Overdue +waiting +[█·]+ +(\d+)\n +dead-lettered +[█·]+ +(\d+)\nleft to itself +waiting +[█·]+ +(\d+)\n +dead-lettered +[█·]+ +(\d+)\n`)
)

// terminalShows is what a terminal shows after all of out. It knows the sequences that the demo
// writes: rows up, clear the row, colours.
func terminalShows(out string) (screen [][]piece, err error) {
	row, color := 0, ""
	at := func() *[]piece {
		for len(screen) <= row {
			screen = append(screen, []piece{})
		}
		return &screen[row]
	}
	for len(out) > 0 {
		if m := escapes.FindString(out); m != "" && strings.HasPrefix(out, m) {
			out = out[len(m):]
			n, _ := strconv.Atoi(m[2 : len(m)-1]) // nothing is 0
			switch m[len(m)-1] {
			case 'A':
				row -= n
			case 'K':
				*at() = []piece{}
			case 'm':
				color = map[int]string{32: "green", 36: "cyan"}[n]
			default:
				return nil, fmt.Errorf("the demo writes %q, which this test does not know", m)
			}
			continue
		}
		text := out
		if i := strings.IndexAny(out, "\x1b\r\n"); i >= 0 {
			text = out[:i]
		}
		if text != "" {
			line := at()
			*line = append(*line, piece{text, color})
			out = out[len(text):]
			continue
		}
		switch out[0] {
		case '\n':
			row++
		case '\x1b':
			return nil, fmt.Errorf("the demo writes %q, which this test does not know", out[:min(10, len(out))])
		}
		out = out[1:]
	}
	return screen, nil
}

const (
	cellWidth, cellHeight = 8.4, 18
	columns               = 80
)

// screen is the last screen of the demo, as a terminal shows it.
func (r *demoRun) screen() string {
	var b strings.Builder
	width, height := int(columns*cellWidth)+32, len(r.Screen)*cellHeight+32
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" role="img" aria-label="The last screen of overdue demo">
<style>text{fill:#e6edf3;white-space:pre}.green{fill:#3fb950}.cyan{fill:#39c5cf}</style>
<rect width="%d" height="%d" rx="8" fill="#0d1117"/>
`, width, height, width, height, width, height)
	for i, row := range r.Screen {
		column := 0
		for _, s := range row {
			cells := len([]rune(s.Text))
			class := ""
			if s.Color != "" {
				class = fmt.Sprintf(" class=%q", s.Color)
			}
			if strings.TrimSpace(s.Text) != "" {
				fmt.Fprintf(&b, "<text%s x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" lengthAdjust=\"spacingAndGlyphs\">%s</text>\n",
					class, 16+float64(column)*cellWidth, 30+i*cellHeight, float64(cells)*cellWidth, html.EscapeString(s.Text))
			}
			column += cells
		}
	}
	return b.String() + "</svg>\n"
}

// lag is how many messages were dead-lettered at each moment, with Overdue and without.
func (r *demoRun) lag() string {
	const left, right, top, bottom = 60.0, 690.0, 40.0, 205.0
	last, n := r.Frames[len(r.Frames)-1], r.Frames[len(r.Frames)-1].WatchedDead
	x := func(seconds float64) float64 { return left + (right-left)*seconds/last.Seconds }
	y := func(dead int) float64 { return bottom - (bottom-top)*float64(dead)/float64(n) }
	received := r.before().Seconds
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 264" width="720" height="264" font-family="sans-serif" font-size="13" role="img" aria-label="%d messages, deadlines from second 2 to second 8, no consumer until second %.0f. Without Overdue every message waits for that receive. With Overdue each is dead-lettered at its deadline.">
<style>.page{fill:#fff}.quiet{fill:#57606a}.grid{stroke:#d0d7de}.with{stroke:#1a7f37}.withText{fill:#1a7f37}.without{stroke:#cf222e}.withoutText{fill:#cf222e}
@media (prefers-color-scheme: dark){.page{fill:#0d1117}.quiet{fill:#9198a1}.grid{stroke:#3d444d}.with{stroke:#3fb950}.withText{fill:#3fb950}.without{stroke:#f85149}.withoutText{fill:#f85149}}</style>
<rect class="page" width="720" height="264"/>
<path class="grid" d="M60 30V205H690" fill="none"/>
<text class="quiet" x="18" y="118" transform="rotate(-90 18 118)" text-anchor="middle">dead-lettered of %d</text>
<text class="quiet" x="54" y="209" text-anchor="end">0</text><text class="quiet" x="54" y="44" text-anchor="end">%d</text>
<text class="quiet" x="375" y="242" text-anchor="middle">time since the first send; the first receive comes after %.0f s</text>
<text class="quiet" x="375" y="258" text-anchor="middle" font-size="11">one run of overdue demo, %s, on %d processors with a load average of %s</text>
`, n, received, n, n, received, r.Version, r.CPUs, r.LoadAverage)
	for s := 0; float64(s) <= last.Seconds; s += 2 {
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%.0f 205v5\"/><text class=\"quiet\" x=\"%.0f\" y=\"224\" text-anchor=\"middle\">%d s</text>\n", x(float64(s)), x(float64(s)), s)
	}
	line := func(dead func(demoFrame) int, shift float64) string {
		var d strings.Builder
		fmt.Fprintf(&d, "M%.1f %.1f", left, y(0)+shift)
		for _, f := range r.Frames {
			fmt.Fprintf(&d, "H%.1fV%.1f", x(f.Seconds), y(dead(f))+shift)
		}
		return d.String()
	}
	fmt.Fprintf(&b, "<path class=\"with\" d=\"%s\" fill=\"none\" stroke-width=\"3\"/>\n", line(func(f demoFrame) int { return f.WatchedDead }, 0))
	fmt.Fprintf(&b, "<path class=\"without\" d=\"%s\" fill=\"none\" stroke-width=\"3\" stroke-dasharray=\"7 4\"/>\n", line(func(f demoFrame) int { return f.LazyDead }, -2))
	fmt.Fprintf(&b, "<text class=\"withText\" x=\"%.0f\" y=\"92\" text-anchor=\"end\">with Overdue: at the deadline</text>\n", x(5.6))
	fmt.Fprintf(&b, "<text class=\"withoutText\" x=\"%.0f\" y=\"192\" text-anchor=\"end\">without: at the next receive, however late</text>\n", x(received)-12)
	return b.String() + "</svg>\n"
}

func TestTheLastScreenIsThatOfATerminal(t *testing.T) {
	got, err := terminalShows("one\r\n\x1b[2Ktwo\r\n\x1b[1A\x1b[2K\x1b[32mgreen\x1b[0m three\r\nfour")
	want := [][]piece{{{"one", ""}}, {{"green", "green"}, {" three", ""}}, {{"four", ""}}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the terminal shows %v, %v, want %v", got, err, want)
	}
	for _, unknown := range []string{"\x1b[3J", "\x1b]0;title\x07"} {
		if _, err := terminalShows(unknown); err == nil {
			t.Errorf("%q is no error", unknown)
		}
	}
}
