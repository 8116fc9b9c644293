// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func events(lines ...string) *bytes.Buffer {
	return bytes.NewBufferString(strings.Join(lines, "\n") + "\n")
}

func TestEventsBecomeOneResultPerLeaf(t *testing.T) {
	got, outside, err := parseEvents("admin", events(
		`{"Action":"start"}`,
		`{"Action":"output","Output":"outside\n"}`,
		`{"Action":"run","Test":"TestA"}`,
		`{"Action":"run","Test":"TestA/one"}`,
		`{"Action":"output","Test":"TestA/one","Output":"why\n"}`,
		`{"Action":"fail","Test":"TestA/one","Elapsed":1.5}`,
		`{"Action":"run","Test":"TestA/two"}`,
		`{"Action":"skip","Test":"TestA/two"}`,
		`{"Action":"fail","Test":"TestA"}`,
		`{"Action":"run","Test":"TestB"}`,
		`{"Action":"pass","Test":"TestB","Elapsed":0.25}`,
		`{"Action":"fail","Elapsed":2}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []result{
		{Package: "admin", Name: "TestA/one", Outcome: failed, Elapsed: 1500 * time.Millisecond, Output: "why\n"},
		{Package: "admin", Name: "TestA/two", Outcome: skipped},
		{Package: "admin", Name: "TestB", Outcome: passed, Elapsed: 250 * time.Millisecond},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if outside != "outside\n" {
		t.Errorf("output outside of tests = %q, want %q", outside, "outside\n")
	}
}

func TestParentThatFailsByItselfIsReported(t *testing.T) {
	got, _, err := parseEvents(".", events(
		`{"Action":"run","Test":"TestA"}`,
		`{"Action":"run","Test":"TestA/one"}`,
		`{"Action":"pass","Test":"TestA/one"}`,
		`{"Action":"output","Test":"TestA","Output":"cleanup failed\n"}`,
		`{"Action":"fail","Test":"TestA"}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []result{
		{Package: ".", Name: "TestA", Outcome: failed, Output: "cleanup failed\n"},
		{Package: ".", Name: "TestA/one", Outcome: passed},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestUnfinishedTestHasFailed(t *testing.T) {
	got, _, err := parseEvents(".", events(
		`{"Action":"run","Test":"TestA"}`,
		`{"Action":"output","Test":"TestA","Output":"panic: test timed out after 2m0s\n"}`,
		`{"Action":"fail","Elapsed":120}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Outcome != failed {
		t.Errorf("results = %+v, want TestA failed", got)
	}
}

func TestOutputThatIsNoEventIsAnError(t *testing.T) {
	if _, _, err := parseEvents(".", events("FAIL")); err == nil {
		t.Error("parseEvents of plain text succeeds, want an error")
	}
}

func TestExceptionsHaveToFail(t *testing.T) {
	for _, c := range []struct {
		got      outcome
		excepted bool
		want     outcome
	}{
		{passed, false, passed},
		{failed, false, failed},
		{skipped, false, failed},
		{passed, true, failed},
		{failed, true, skipped},
		{skipped, true, skipped},
	} {
		if got := judge(c.got, c.excepted); got != c.want {
			t.Errorf("judge(%s, excepted %v) = %s, want %s", c.got, c.excepted, got, c.want)
		}
	}
}

func TestReportEndsWithTheCounts(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, options{ways: []way{wayDirect, wayRelay}}, false)
	r.add(wayDirect, []result{{Package: ".", Name: "TestA", Outcome: passed}, {Package: ".", Name: "TestB", Outcome: passed}})
	r.add(wayRelay, []result{{Package: ".", Name: "TestA", Outcome: passed}, {Package: ".", Name: "TestB", Outcome: failed, Output: "why\n"}})
	if err := r.close(nil); !errors.Is(err, errFailed) {
		t.Errorf("close with a failed test = %v, want errFailed", err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	want := []string{
		"direct: 2 passed, 0 failed, 0 skipped",
		"through the relay: 1 passed, 1 failed, 0 skipped",
		"3 passed, 1 failed, 0 skipped",
	}
	if diff := cmp.Diff(want, lines[max(0, len(lines)-3):]); diff != "" {
		t.Errorf("last lines (-want +got):\n%s", diff)
	}
	if !strings.Contains(out.String(), "FAIL azservicebus.TestB, through the relay (0.0s)\n\twhy\n") {
		t.Errorf("the report does not show TestB and its output:\n%s", out.String())
	}
}

// whole is a report of a run in which every live test passed through the relay, but for the last
// missing.
func whole(out *strings.Builder, missing int, t traffic) *report {
	r := newReport(out, options{ways: []way{wayRelay}}, true)
	r.add(wayRelay, slices.Repeat([]result{{Package: ".", Name: "TestA", Outcome: passed}}, liveTests-missing))
	r.relayed(t)
	return r
}

func TestRunInWhichMessagesPassUnmonitoredFails(t *testing.T) {
	for _, c := range []struct {
		traffic traffic
		want    error
	}{
		{traffic{monitored: leastMonitored, companions: leastMonitored / companionNames}, nil},
		{traffic{monitored: leastMonitored, unmonitored: 1, companions: leastMonitored}, errFailed},
		{traffic{monitored: leastMonitored - 1, companions: leastMonitored}, errFailed},
		{traffic{monitored: leastMonitored, companions: leastMonitored/companionNames - 1}, errFailed},
		{traffic{}, errFailed},
	} {
		var out strings.Builder
		if err := whole(&out, 0, c.traffic).close(nil); !errors.Is(err, c.want) {
			t.Errorf("close after %+v = %v, want %v\n%s", c.traffic, err, c.want, &out)
		}
	}
}

func TestRunWithoutOneOfTheLiveTestsFails(t *testing.T) {
	for missing, want := range []error{nil, errFailed} {
		var out strings.Builder
		r := whole(&out, missing, traffic{monitored: leastMonitored, companions: leastMonitored})
		if err := r.close(nil); !errors.Is(err, want) {
			t.Errorf("close with %d live tests missing = %v, want %v\n%s", missing, err, want, &out)
		}
	}
}

func TestBrokerThatEndsBadlyFailsTheRun(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, options{ways: []way{wayDirect, wayRelay}}, false)
	r.add(wayDirect, []result{{Package: ".", Name: "TestA", Outcome: passed}})
	if err := r.close(errors.New("exit status 66")); !errors.Is(err, errFailed) {
		t.Errorf("close after a broker has failed = %v, want errFailed", err)
	}
	if !strings.Contains(out.String(), "FAIL exit status 66\n") || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed, 0 skipped\n") {
		t.Errorf("report = %q, want the failure and then the counts", out.String())
	}
}

func TestPatternMatchesOneTestAlone(t *testing.T) {
	got := liveTest{Package: ".", Name: "TestA/b.c"}.pattern()
	if want := `^TestA$/^b\.c$`; got != want {
		t.Errorf("pattern = %s, want %s", got, want)
	}
}
