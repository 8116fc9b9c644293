// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// aResult is a result without a measurement.
type aResult struct {
	Value  float64 `json:"value"`
	broken error
}

func (r *aResult) Figures() []Figure {
	return []Figure{Figure{Name: "f", What: "f", Value: r.Value}.atMost(1)}
}
func (r *aResult) WriteTable(w io.Writer) error { return writeText(w, "a table\n") }
func (r *aResult) Verdict() error               { return r.broken }

// aPlan measures nothing.
type aPlan struct {
	result Result
	err    error
	say    string
}

func (plan *aPlan) Measure(_ context.Context, _ *Program, progress func(string)) (Result, error) {
	if plan.say != "" {
		progress(plan.say)
	}
	return plan.result, plan.err
}

func TestTheProcessorTimeOfAProcessIsRead(t *testing.T) {
	// The system counts hundredths of a second, of which a busy machine gives few.
	for began := time.Now(); processCPU(os.Getpid()) == 0 && time.Since(began) < 10*time.Second; {
	}
	if cpu := processCPU(os.Getpid()); cpu <= 0 || cpu > 600 {
		t.Errorf("this process has used %v s of processor time, want a little", cpu)
	}
}

func TestABenchOfAllKeepsWhatItHasMeasuredBeforeAFailure(t *testing.T) {
	var said []string
	plans := allPlans{
		{"first", &aPlan{result: &aResult{Value: 0.5}, say: "under way"}},
		{"second", &aPlan{result: &aResult{Value: 2, broken: errors.New("of 10 messages 1 was lost")}}},
		{"third", &aPlan{err: errors.New("no room")}},
		{"fourth", &aPlan{result: &aResult{}}},
	}
	r, err := plans.Measure(t.Context(), &Program{Version: "v1"},
		func(text string) { said = append(said, text) })
	if err == nil || err.Error() != "bench third: no room" {
		t.Errorf("err = %v, want that of the third", err)
	}
	if want := []string{"1/4 first: under way"}; !cmp.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	if err := r.Verdict(); err == nil || err.Error() != "bench second: of 10 messages 1 was lost" {
		t.Errorf("verdict = %v, want that of the second", err)
	}
	var b bytes.Buffer
	if err := WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version *string
		CPUs    int
		Figures []struct {
			Name   string
			Value  float64
			Target *float64
			Met    *bool
		}
		Results map[string]struct{ Value float64 }
	}
	dec := json.NewDecoder(&b)
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Version == nil || *got.Version != "v1" || got.CPUs < 1 || len(got.Figures) != 2 ||
		!*got.Figures[0].Met || *got.Figures[1].Met || *got.Figures[1].Target != 1 {
		t.Errorf("figures = %+v, want those of both that were measured", got)
	}
	if len(got.Results) != 2 || got.Results["second"].Value != 2 {
		t.Errorf("results = %+v, want those of both that were measured", got.Results)
	}
}
