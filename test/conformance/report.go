// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Results that a whole run has to reach. They are exact or just below what was seen, and move with
// the version of the SDK.
const (
	// liveTests is how many results each way brings. A test that is gone, or no longer found, fails
	// the run.
	liveTests = 158
	// leastMonitored is how many messages pass the relay at least, each with a deadline: 35,390 where
	// no test repeats itself.
	leastMonitored = 35_000
	// companionNames is how many messages one companion names at most.
	companionNames = 100
)

// report gathers results and prints them. Safe for concurrent use.
type report struct {
	out     io.Writer
	ways    []way
	verbose bool
	whole   bool // every live test ran: exceptions nobody met are worth a word

	mu      sync.Mutex
	start   time.Time
	results map[way][]result

	traffic traffic // of all that went through a relay
}

func newReport(out io.Writer, opt options, whole bool) *report {
	return &report{out: out, ways: opt.ways, verbose: opt.verbose, whole: whole, start: time.Now(), results: map[way][]result{}}
}

func (r *report) add(w way, results []result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[w] = append(r.results[w], results...)
	if !r.verbose {
		return
	}
	for _, t := range results {
		fmt.Fprintf(r.out, "%s %s %s (%.1fs)\n", w, t.Outcome, qualified(t.Package, t.Name), t.Elapsed.Seconds())
		if t.Outcome == passed {
			fmt.Fprint(r.out, t.Output)
		}
	}
}

// relayed adds what a proxy has counted.
func (r *report) relayed(t traffic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traffic.add(t)
}

// close prints what failed, what was skipped and why, what went wrong besides the tests, the counts
// of each way, and as the closing line their sum. It returns errFailed if anything is not as it
// should be.
func (r *report) close(failure error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := failure != nil
	sum := map[outcome]int{}
	var lines []string
	for _, w := range r.ways {
		count, bad := r.write(w)
		wrong = wrong || bad
		for o, n := range count {
			sum[o] += n
		}
		if n := len(r.results[w]); r.whole && n != liveTests {
			fmt.Fprintf(r.out, "FAIL %s: %d results of live tests, want %d; a new version of the SDK changes liveTests\n", w, n, liveTests)
			wrong = true
		}
		lines = append(lines, fmt.Sprintf("%s: %s\n", w, counts(count)))
	}
	if failure != nil {
		fmt.Fprintf(r.out, "FAIL %v\n", failure)
	}
	fmt.Fprintf(r.out, "live tests of %s: %d in %.0f s\n", sdkModule, sum[passed]+sum[failed]+sum[skipped], time.Since(r.start).Seconds())
	if slices.Contains(r.ways, wayRelay) {
		t := r.traffic
		fmt.Fprintf(r.out, "messages that passed the relay: %d monitored, %d not; companions: %d\n", t.monitored, t.unmonitored, t.companions)
		if r.whole && t.monitored < leastMonitored {
			fmt.Fprintf(r.out, "FAIL fewer than %d messages passed the relay with a deadline\n", leastMonitored)
			wrong = true
		}
		if t.companions*companionNames < t.monitored {
			fmt.Fprintf(r.out, "FAIL %d companions cannot name %d messages\n", t.companions, t.monitored)
			wrong = true
		}
		if t.unmonitored > 0 {
			fmt.Fprintln(r.out, "FAIL every entity is monitored and has a deadline, so no message may pass without a companion")
			wrong = true
		}
	}
	for _, l := range lines {
		fmt.Fprint(r.out, l)
	}
	fmt.Fprintln(r.out, counts(sum))
	if wrong {
		return errFailed
	}
	return nil
}

func counts(n map[outcome]int) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", n[passed], n[failed], n[skipped])
}

// write prints what failed and what was skipped one way, and counts. Wrong is what failed, and a
// list of exceptions that is not true.
func (r *report) write(w way) (count map[outcome]int, wrong bool) {
	results := r.results[w]
	slices.SortFunc(results, func(a, b result) int {
		return strings.Compare(qualified(a.Package, a.Name), qualified(b.Package, b.Name))
	})
	count = map[outcome]int{}
	met := map[string]bool{}
	for _, t := range results {
		name := qualified(t.Package, t.Name)
		reason, excepted := exceptions[name]
		met[name] = true
		got := judge(t.Outcome, excepted)
		count[got]++
		switch {
		case got == skipped:
			fmt.Fprintf(r.out, "skip %s, %s: %s\n", name, w, reason)
		case got == failed && t.Outcome == passed:
			fmt.Fprintf(r.out, "FAIL %s, %s, passes; take it off the list of exceptions\n", name, w)
		case got == failed && t.Outcome == skipped:
			fmt.Fprintf(r.out, "FAIL %s, %s, skips itself and is not on the list of exceptions\n%s", name, w, indent(t.Output))
		case got == failed:
			fmt.Fprintf(r.out, "FAIL %s, %s (%.1fs)\n%s", name, w, t.Elapsed.Seconds(), indent(t.Output))
		}
		wrong = wrong || got == failed
	}
	for name := range exceptions {
		if r.whole && !met[name] {
			fmt.Fprintf(r.out, "FAIL %s is on the list of exceptions, but the SDK has no such live test\n", name)
			wrong = true
		}
	}
	return count, wrong
}

// judge weighs an outcome against the list of exceptions: on the list a test may do anything
// but pass, elsewhere only that.
func judge(o outcome, excepted bool) outcome {
	switch {
	case excepted && o != passed:
		return skipped
	case !excepted && o == passed:
		return passed
	default:
		return failed
	}
}

func indent(s string) string {
	if s == "" {
		return ""
	}
	return "\t" + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n\t") + "\n"
}
