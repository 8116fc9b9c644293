// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A benchResult is what a measurement has found. As JSON it is a contract: scripts read it. Fields are added, never
// renamed.
type benchResult interface {
	figures() []benchFigure       // those that there are targets for, and their like
	writeTable(w io.Writer) error // all of it, for people
	verdict() error               // an error when a promise was broken; how fast is none
}

// benchHead says what was measured, and where.
type benchHead struct {
	Version     string   `json:"version"`
	CPUs        int      `json:"cpus"`                  // of the machine, shared by all that is measured and its clients
	LoadAverage *float64 `json:"loadAverage,omitempty"` // of the last minute before, where the system tells
}

func newBenchHead() benchHead {
	h := benchHead{Version: version(), CPUs: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		if v, err := strconv.ParseFloat(first, 64); err == nil {
			h.LoadAverage = &v
		}
	}
	return h
}

// where is the head in words.
func (h *benchHead) where() string {
	if h.LoadAverage == nil {
		return fmt.Sprintf("%d processors for everything", h.CPUs)
	}
	return fmt.Sprintf("%d processors for everything, with a load of %.1f from others when it began", h.CPUs, *h.LoadAverage)
}

// A benchFigure is one figure, and what it has to be.
type benchFigure struct {
	Name    string      `json:"name"` // for scripts
	What    string      `json:"what"`
	Value   float64     `json:"value"`
	Spread  *[2]float64 `json:"spread,omitempty"` // the lowest and the highest, where the value is the median of rounds
	Unit    string      `json:"unit,omitempty"`   // none for ratios
	Target  *float64    `json:"target,omitempty"` // none: there to be seen
	AtLeast bool        `json:"atLeast"`          // the target is the least that the value has to be, not the most
	Met     *bool       `json:"met,omitempty"`
}

// atMost and atLeast set the target.
func (f benchFigure) atMost(target float64) benchFigure {
	met := f.Value <= target
	f.Target, f.Met = &target, &met
	return f
}

func (f benchFigure) atLeast(target float64) benchFigure {
	met := f.Value >= target
	f.Target, f.Met, f.AtLeast = &target, &met, true
	return f
}

// among sets the median of rounds, and their spread.
func (f benchFigure) among(rounds []float64) benchFigure {
	var spread [2]float64
	f.Value, spread[0], spread[1] = medianOf(rounds)
	f.Spread = &spread
	return f
}

// shown is a value of f for people: three digits, or whole numbers.
func (f *benchFigure) shown(v float64) string {
	var s string
	switch {
	case v >= 100 || v <= -100:
		s = strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10 || v <= -10:
		s = strconv.FormatFloat(v, 'f', 1, 64)
	case v > -1 && v < 1:
		s = strconv.FormatFloat(v, 'f', 3, 64)
	default:
		s = strconv.FormatFloat(v, 'f', 2, 64)
	}
	if strings.Contains(s, ".") {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// row is what the table says of f: what, measured, target, met.
func (f *benchFigure) row() [4]string {
	measured := strings.TrimSpace(f.shown(f.Value) + " " + f.Unit)
	if f.Spread != nil && f.Spread[0] != f.Spread[1] {
		measured += fmt.Sprintf(" (%s to %s)", f.shown(f.Spread[0]), f.shown(f.Spread[1]))
	}
	if f.Target == nil {
		return [4]string{f.What, measured, "", ""}
	}
	target, met := "≤ ", "no"
	if f.AtLeast {
		target = "≥ "
	}
	if *f.Met {
		met = "yes"
	}
	return [4]string{f.What, measured, strings.TrimSpace(target + f.shown(*f.Target) + " " + f.Unit), met}
}

// rounded is v with three digits behind the point: more would be noise.
func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

// medianOf is the median of values, and the lowest and the highest of them.
func medianOf(values []float64) (median, lowest, highest float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return rounded((sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2), rounded(sorted[0]), rounded(sorted[len(sorted)-1])
}

// tableOf has a title for each column and lines below them, all columns but the first to the right.
func tableOf(rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + space)
			} else {
				line.WriteString("  " + space + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// tableOfFigures is what `overdue bench` prints.
func tableOfFigures(figures []benchFigure) string {
	rows := [][]string{{"", "measured", "target", "met"}}
	for _, f := range figures {
		row := f.row()
		rows = append(rows, row[:])
	}
	return tableOf(rows)
}

// missedTargets is an error that names the figures that miss their targets.
func missedTargets(figures []benchFigure) error {
	var errs []error
	for _, f := range figures {
		if f.Met != nil && !*f.Met {
			row := f.row()
			errs = append(errs, fmt.Errorf("target missed: %s: %s, not %s", row[0], row[1], row[2]))
		}
	}
	return errors.Join(errs...)
}

func writeResult(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func writeResultJSON(w io.Writer, r benchResult) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return writeResult(w, b.String())
}

// benchWhole is all measurements.
type benchWhole struct {
	benchHead
	names   []string // of the results, as they were measured
	results map[string]benchResult
}

func (r *benchWhole) figures() (all []benchFigure) {
	for _, name := range r.names {
		all = append(all, r.results[name].figures()...)
	}
	return all
}

func (r *benchWhole) writeTable(w io.Writer) error {
	return writeResult(w, fmt.Sprintf("overdue %s, %s\n\n%s", r.Version, r.where(), tableOfFigures(r.figures())))
}

func (r *benchWhole) verdict() error {
	var errs []error
	for _, name := range r.names {
		if err := r.results[name].verdict(); err != nil {
			errs = append(errs, fmt.Errorf("bench %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// MarshalJSON has the figures of all, and the results as their own commands print them.
func (r *benchWhole) MarshalJSON() ([]byte, error) {
	figures := r.figures()
	if figures == nil {
		figures = []benchFigure{}
	}
	return json.Marshal(struct {
		benchHead
		Figures []benchFigure          `json:"figures"`
		Results map[string]benchResult `json:"results"`
	}{r.benchHead, figures, r.results})
}
