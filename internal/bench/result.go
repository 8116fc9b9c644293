// SPDX-License-Identifier: Apache-2.0

package bench

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
	"time"
)

// Head describes the measured program and the machine.
type Head struct {
	Version string `json:"version"`
	// of the machine, shared by the measured programs and their clients
	CPUs int `json:"cpus"`
	// of the minute before, if the system reports it
	LoadAverage *float64 `json:"loadAverage,omitempty"`
}

// Verdict returns nil: figures alone break no promise. Results that count messages have their own.
func (Head) Verdict() error { return nil }

func (p *Program) head() Head {
	h := Head{Version: p.Version, CPUs: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		if v, err := strconv.ParseFloat(first, 64); err == nil {
			h.LoadAverage = &v
		}
	}
	return h
}

// where returns the head in words.
func (h *Head) where() string {
	if h.LoadAverage == nil {
		return fmt.Sprintf("%d processors for everything", h.CPUs)
	}
	return fmt.Sprintf("%d processors for everything, load average %.1f before the start", h.CPUs, *h.LoadAverage)
}

// A Figure is one figure with its target.
type Figure struct {
	Name  string  `json:"name"` // for scripts
	What  string  `json:"what"`
	Value float64 `json:"value"`
	// the lowest and the highest, if the value is the median of rounds
	Spread *[2]float64 `json:"spread,omitempty"`
	Unit   string      `json:"unit,omitempty"`   // none for ratios
	Target *float64    `json:"target,omitempty"` // none: for information
	// the target is a minimum, not a maximum
	AtLeast bool  `json:"atLeast"`
	Met     *bool `json:"met,omitempty"`
}

// atMost and atLeast set the target.
func (f Figure) atMost(target float64) Figure {
	met := f.Value <= target
	f.Target, f.Met = &target, &met
	return f
}

func (f Figure) atLeast(target float64) Figure {
	met := f.Value >= target
	f.Target, f.Met, f.AtLeast = &target, &met, true
	return f
}

// among sets the median of rounds, and their spread.
func (f Figure) among(rounds []float64) Figure {
	var spread [2]float64
	f.Value, spread[0], spread[1] = medianOf(rounds)
	f.Spread = &spread
	return f
}

// shown formats a value of f for people: three digits, or whole numbers.
func (f *Figure) shown(v float64) string {
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

// row returns the row of f in the table: what, measured, target, met.
func (f *Figure) row() [4]string {
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
	return [4]string{f.What, measured, strings.TrimSpace(target + f.shown(*f.Target) + " " +
		f.Unit), met}
}

// inMilliseconds returns d in milliseconds, to the microsecond.
func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rounded returns v with three decimals: more would be noise.
func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

// medianOf returns the median of values, and the lowest and the highest of them.
func medianOf(values []float64) (median, lowest, highest float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return rounded((sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2), rounded(sorted[0]),
		rounded(sorted[len(sorted)-1])
}

// MissedTargets returns an error that names the figures with missed targets.
func MissedTargets(figures []Figure) error {
	var errs []error
	for _, f := range figures {
		if f.Met != nil && !*f.Met {
			row := f.row()
			errs = append(errs, fmt.Errorf("target missed: %s: %s, not %s", row[0], row[1], row[2]))
		}
	}
	return errors.Join(errs...)
}

func writeText(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// WriteJSON writes a result, indented.
func WriteJSON(w io.Writer, r Result) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return writeText(w, b.String())
}

// MarshalJSON encodes the figures of all measurements, and the results in the form of their own
// commands.
func (r *allResults) MarshalJSON() ([]byte, error) {
	figures := r.Figures()
	if figures == nil {
		figures = []Figure{}
	}
	return json.Marshal(struct {
		Head
		Figures []Figure          `json:"figures"`
		Results map[string]Result `json:"results"`
	}{r.Head, figures, r.results})
}
