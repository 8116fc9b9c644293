// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestFiguresStandNextToTheirTargets(t *testing.T) {
	figures := []Figure{
		Figure{Name: "rate", What: "sends ÷ direct"}.among([]float64{0.7, 0.9123456,
			1.1}).atLeast(0.8),
		Figure{Name: "lag", What: "late by", Value: 50.04, Unit: "ms"}.atMost(50),
		{Name: "even", What: "of two rounds", Value: 0.00049, Unit: "s"},
		Figure{Name: "start", What: "start", Unit: "ms"}.among([]float64{123.4, 120}).atMost(200),
	}
	want := `                           measured  target  met
sends ÷ direct   0.912 (0.7 to 1.1)   ≥ 0.8  yes
late by                       50 ms    ≤ 50   no
of two rounds                   0 s
start           122 ms (120 to 123)   ≤ 200  yes
`
	if diff := cmp.Diff(want, tableOfFigures(figures)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if err := MissedTargets(figures); err == nil ||
		err.Error() != "target missed: late by: 50 ms, not ≤ 50 ms" {
		t.Errorf("MissedTargets = %v, want the one that is missed", err)
	}
	if err := MissedTargets(figures[2:]); err != nil {
		t.Errorf("MissedTargets of what has met its targets = %v, want none", err)
	}
}

// The tables of every measurement, with the figures that the pages quote, fit into a terminal.
func TestTablesFitIntoATerminal(t *testing.T) {
	text, err := os.ReadFile("../../test/bench/results.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Head
		Results map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	all := &allResults{Head: recorded.Head, results: map[string]Result{
		"check": &CheckResult{}, "cost": &CostResult{}, "expire": &ExpireResult{}, "latency": &LatencyResult{}, "memory": &MemoryResult{},
		"send": &SendResult{}, "start": &StartResult{},
	}}
	for name, result := range all.results {
		if err := json.Unmarshal(recorded.Results[name], result); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all.names = append(all.names, name)
		fitsIntoATerminal(t, name, result)
	}
	fitsIntoATerminal(t, "all", all)
}

func fitsIntoATerminal(t *testing.T, name string, r Result) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len() == 0 {
		t.Errorf("%s prints nothing", name)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > tableWidth {
			t.Errorf("%s: a line has %d columns, want %d at most:\n%s", name, n, tableWidth, line)
		}
	}
}
