// SPDX-License-Identifier: Apache-2.0

// Package bench keeps the figures that pages quote in step with results.json, which is what
// `overdue bench --json` printed.
package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the figures into the pages instead of comparing with them")

const root = "../.."

// Marks of a block in a page. Between the begin and its end stands a table, or nothing else that
// is written by hand. The begin names the table; no name is that of the front page.
const (
	blockBegin = "<!-- bench:begin"
	blockClose = "-->\n"
	blockEnd   = "<!-- bench:end -->"
)

// results is what pages quote of results.json.
type results struct {
	Version     string
	CPUs        int
	LoadAverage *float64
	Figures     []figure
	Results     struct {
		Send struct {
			HAProxy *string
			Lines   []struct {
				Clients, Way      string
				MessagesPerSecond float64
			}
		}
		Expire struct {
			Cases []struct {
				Outstanding, Consumers, Notified int
				Drained                          bool
				LagMs                            struct{ P50, P99, Max float64 }
			}
		}
	}
}

type figure struct {
	Name, What, Unit string
	Value            float64
	Spread           *[2]float64
	Target           *float64
	AtLeast          bool
	Met              *bool
}

func TestPagesQuoteTheFiguresOfTheResults(t *testing.T) {
	r := readResults(t, "results.json")
	n := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" ||
			d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(file) != ".md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		want, blocks, err := fill(string(text), r)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			return nil
		}
		n += blocks
		if *update && want != string(text) {
			return os.WriteFile(file, []byte(want), 0o644)
		}
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("%s quotes other figures than results.json; run `make docs` (-results +page):\n%s", file, diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 2 {
		t.Errorf("%d blocks in all pages, want the front page's and the one of test/bench", n)
	}
}

// A measurement that names no commit of this repository cannot be made again.
func TestMeasuredCommitsAreInTheHistory(t *testing.T) {
	shallow, err := exec.Command("git", "-C", root, "rev-parse", "--is-shallow-repository").Output()
	if err != nil || strings.TrimSpace(string(shallow)) != "false" {
		t.Skip("needs a checkout with the whole history")
	}
	measured := regexp.MustCompile(`"version": "(?:Overdue )?([0-9a-f]{7,40})"`)
	for _, file := range []string{"results.json", "peers.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commits := measured.FindAllStringSubmatch(string(text), -1)
		if len(commits) == 0 {
			t.Errorf("%s names no commit; build the measured binary from a commit", file)
		}
		for _, m := range commits {
			if err := exec.Command("git", "-C", root, "merge-base", "--is-ancestor", m[1], "HEAD").Run(); err != nil {
				t.Errorf("%s was measured with the commit %s, which is not in the history of HEAD: %v", file, m[1], err)
			}
		}
	}
}

func readResults(t *testing.T, file string) *results {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &results{}
	if err := json.Unmarshal(text, r); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return r
}

// fill puts the tables into the blocks of a page, and counts them.
func fill(page string, r *results) (filled string, blocks int, err error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(page, "\n"+blockBegin)
		b.WriteString(before)
		if !ok {
			return b.String(), blocks, nil
		}
		name, rest, opened := strings.Cut(rest, blockClose)
		old, rest, closed := strings.Cut(rest, blockEnd)
		if !opened || !closed || strings.Contains(old, blockBegin) {
			return "", 0, fmt.Errorf("a block that begins with %q does not end with %q", blockBegin,
				blockEnd)
		}
		var table string
		switch strings.TrimSpace(name) {
		case "":
			table, err = r.numbers()
		case "all":
			table = r.all()
		default:
			err = fmt.Errorf("no table is called %q; there are none and all",
				strings.TrimSpace(name))
		}
		if err != nil {
			return "", 0, err
		}
		b.WriteString("\n" + blockBegin + name + blockClose + "\n" + table + "\n" + blockEnd)
		page, blocks = rest, blocks+1
	}
}

// numbers is the table of the front page.
func (r *results) numbers() (string, error) {
	var missing []string
	value := func(name string) string {
		for _, f := range r.Figures {
			if f.Name == name {
				return short(f.Value)
			}
		}
		missing = append(missing, name)
		return ""
	}
	direct := func(clients string) string {
		for _, l := range r.Results.Send.Lines {
			if l.Clients == clients && l.Way == "direct" {
				return short(l.MessagesPerSecond)
			}
		}
		missing = append(missing, "the rate of "+clients)
		return ""
	}
	median, drained := "", ""
	for _, c := range r.Results.Expire.Cases {
		switch {
		case c.Outstanding != 100_000 || c.Consumers != 0:
		case c.Drained:
			drained = fmt.Sprintf("%d of %d", c.Notified, c.Outstanding)
		default:
			median = short(c.LagMs.P50)
		}
	}
	if median == "" || drained == "" {
		missing = append(missing, "the lag of 100,000 deadlines")
	}
	ratios := func(way string, kinds ...string) string {
		var all []string
		for _, k := range kinds {
			all = append(all, value("send."+k+"."+way+".haproxy"))
		}
		return strings.Join(all, ", ")
	}
	rows := [][2]string{
		{"lag of a missed deadline, 100,000 deadlines within 10 s: median, 99th percentile; a plain timer in the same run: 99th percentile",
			median + " ms, " + value("expire.100000.0") + " ms; " + value("expire.100000.0.timer") +
				" ms"},
		{"the same while consumers empty the dead-letter queue: 99th percentile; notified",
			value("expire.100000.0.drained") + " ms; " + drained},
		{"messages per second relative to HAProxy in TCP mode, not monitored: one sender, 16 senders, batches of 100",
			ratios("unmonitored", "one", "single", "batches")},
		{"the same, monitored, one companion per message",
			ratios("each", "one", "single", "batches")},
		{"the same, monitored, one companion per slot",
			ratios("slot", "one", "single", "batches")},
		{"added latency per monitored send, in broker round trips: one sender; 16 senders; 16 senders with slots",
			value("latency.each.1.roundTrips") + "; " + value("latency.each.16.roundTrips") + "; " +
				value("latency.slot.16.roundTrips")},
		{"operations on the namespace per message that is received in time: at 1,000 a second, at 10,000 a second",
			value("cost.slot.1000") + ", " + value("cost.slot.10000")},
		{"operations to expire ten overdue messages: among 1,000 live messages, among 1,000,000",
			value("check.1000.operations") + ", " + value("check.1000000.operations")},
		{"time from start to ready, broker included", value("start") + " ms"},
		{"resident memory of a sidecar: idle, after a burst with 100,000 outstanding deadlines",
			value("memory.proxy.idle") + " MiB, " + value("memory.proxy.outstanding") + " MiB"},
		{"embedded broker with the Go SDK, sends per second: one sender, 16 senders, batches of 100",
			direct("one") + ", " + direct("single") + ", " + direct("batches")},
		{"the same on a directory, with each send on disk before its answer, relative to memory: 16 senders, batches of 100",
			value("broker.single") + ", " + value("broker.one-batches")},
	}
	if missing != nil {
		return "", fmt.Errorf("results.json lacks %s; take it from `overdue bench --json` where HAProxy is installed", strings.Join(missing, ", "))
	}
	text := "| figure | value |\n|---|---|\n"
	for _, row := range rows {
		text += "| " + row[0] + " | " + row[1] + " |\n"
	}
	return text + "\n" + r.origin() + "\n", nil
}

// all is every figure that has a target.
func (r *results) all() string {
	text := "| | measured | lowest to highest round | target | met |\n|---|---|---|---|---|\n"
	for _, f := range r.Figures {
		if f.Target == nil {
			continue
		}
		spread, target, met := "", "≤ ", "no"
		if f.Spread != nil && f.Spread[0] != f.Spread[1] {
			spread = short(f.Spread[0]) + " to " + short(f.Spread[1])
		}
		if f.AtLeast {
			target = "≥ "
		}
		target += short(*f.Target)
		if f.Met != nil && *f.Met {
			met = "yes"
		}
		text += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", f.What,
			strings.TrimSpace(short(f.Value)+" "+f.Unit), spread, target, met)
	}
	return text + "\n" + r.origin() + "\n"
}

// origin says where the figures come from.
func (r *results) origin() string {
	load := "an unknown load"
	if r.LoadAverage != nil {
		load = "a load average of " + short(*r.LoadAverage)
	}
	haproxy := "no HAProxy"
	if r.Results.Send.HAProxy != nil {
		haproxy = "HAProxy " + *r.Results.Send.HAProxy
	}
	return fmt.Sprintf("Measured with Overdue %s and %s. Apps, Overdue and the broker shared %d processors. Other work before the run had %s.", r.Version, haproxy, r.CPUs, load)
}

// short has two digits that count, three from 100 on, and a comma for each thousand.
func short(v float64) string {
	digits := 2
	if math.Abs(v) >= 100 {
		digits = 3
	}
	if v == 0 {
		return "0"
	}
	scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(math.Abs(v))))
	text := strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
	whole, fraction, _ := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

func TestShortNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0254: "0.025", 0.118: "0.12", -0.118: "-0.12", 1: "1", 1.03: "1", 1.33: "1.3",
		20.7: "21", 65.9: "66",
		123.4: "123", 11234: "11,200", 1_234_567: "1,230,000", 999.9: "1,000", -1234: "-1,230",
	} {
		if got := short(v); got != want {
			t.Errorf("short(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestOnlyWhatStandsInABlockIsWritten(t *testing.T) {
	target, met := 100.0, true
	r := &results{Version: "v1", CPUs: 2, Figures: []figure{
		{Name: "start", What: "start", Unit: "ms", Value: 17.3, Target: &target, Met: &met},
		{Name: "memory", What: "memory", Unit: "MiB", Value: 30},
	}}
	const page = "# A page\n\n<!-- bench:begin all -->\nstale\n<!-- bench:end -->\n\nby hand\n"
	got, n, err := fill(page, r)
	want := "# A page\n\n<!-- bench:begin all -->\n\n| | measured | lowest to highest round | target | met |\n|---|---|---|---|---|\n" +
		"| start | 17 ms |  | ≤ 100 | yes |\n\n" +
		"Measured with Overdue v1 and no HAProxy. Apps, Overdue and the broker shared 2 processors. Other work before the run had an unknown load.\n" +
		"\n<!-- bench:end -->\n\nby hand\n"
	if diff := cmp.Diff(want, got); diff != "" || n != 1 || err != nil {
		t.Errorf("%d blocks, %v (-want +got):\n%s", n, err, diff)
	}
	if again, _, err := fill(got, r); again != got || err != nil {
		t.Errorf("filled twice: %v, %q", err, again)
	}
	for why, broken := range map[string]string{
		"does not end":      "\n<!-- bench:begin all -->\nstale\n",
		"no table is":       "\n<!-- bench:begin some -->\n<!-- bench:end -->\n",
		"lacks the rate of": "\n<!-- bench:begin -->\n<!-- bench:end -->\n",
	} {
		if _, _, err := fill(broken, r); err == nil ||
			!strings.Contains(err.Error(), strings.TrimPrefix(why, "lacks ")) {
			t.Errorf("fill(%q) = %v, want an error with %q", broken, err, why)
		}
	}
}
