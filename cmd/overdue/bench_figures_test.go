// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"overdue/internal/lag"
)

func TestFiguresStandBesideTheirTargets(t *testing.T) {
	figures := []benchFigure{
		benchFigure{Name: "rate", What: "sends ÷ direct"}.among([]float64{0.7, 0.9123456, 1.1}).atLeast(0.8),
		benchFigure{Name: "lag", What: "late by", Value: 50.04, Unit: "ms"}.atMost(50),
		{Name: "even", What: "of two rounds", Value: 0.00049, Unit: "s"},
		benchFigure{Name: "start", What: "start", Unit: "ms"}.among([]float64{123.4, 120}).atMost(200),
	}
	want := `                           measured    target  met
sends ÷ direct   0.912 (0.7 to 1.1)     ≥ 0.8  yes
late by                       50 ms   ≤ 50 ms   no
of two rounds                   0 s
start           122 ms (120 to 123)  ≤ 200 ms  yes
`
	if diff := cmp.Diff(want, tableOfFigures(figures)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if err := missedTargets(figures); err == nil || err.Error() != "target missed: late by: 50 ms, not ≤ 50 ms" {
		t.Errorf("missedTargets = %v, want the one that is missed", err)
	}
	if err := missedTargets(figures[2:]); err != nil {
		t.Errorf("missedTargets of what has met its targets = %v, want none", err)
	}
}

// aResult is a result without a measurement.
type aResult struct {
	Value  float64 `json:"value"`
	broken error
}

func (r *aResult) figures() []benchFigure {
	return []benchFigure{benchFigure{Name: "f", What: "f", Value: r.Value}.atMost(1)}
}
func (r *aResult) writeTable(w io.Writer) error { return writeResult(w, "a table\n") }
func (r *aResult) verdict() error               { return r.broken }

func aPart(name string, r benchResult, err error) *benchPart {
	return &benchPart{name, func(context.Context, func(string)) (benchResult, error) { return r, err }}
}

func TestABenchOfAllKeepsWhatItHasMeasuredBeforeAFailure(t *testing.T) {
	var said []string
	parts := []*benchPart{
		{"first", func(_ context.Context, say func(string)) (benchResult, error) {
			say("under way")
			return &aResult{Value: 0.5}, nil
		}},
		aPart("second", &aResult{Value: 2, broken: errors.New("of 10 messages 1 was lost")}, nil),
		aPart("third", nil, errors.New("no room")),
		aPart("fourth", &aResult{}, nil),
	}
	r, err := benchAll(parts).measure(t.Context(), func(text string) { said = append(said, text) })
	if err == nil || err.Error() != "bench third: no room" {
		t.Errorf("err = %v, want that of the third", err)
	}
	if want := []string{"1/4 first: under way"}; !cmp.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	if err := r.verdict(); err == nil || err.Error() != "bench second: of 10 messages 1 was lost" {
		t.Errorf("verdict = %v, want that of the second", err)
	}
	var b bytes.Buffer
	if err := writeResultJSON(&b, r); err != nil {
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
	if got.Version == nil || got.CPUs < 1 || len(got.Figures) != 2 || !*got.Figures[0].Met || *got.Figures[1].Met || *got.Figures[1].Target != 1 {
		t.Errorf("figures = %+v, want those of both that were measured", got)
	}
	if len(got.Results) != 2 || got.Results["second"].Value != 2 {
		t.Errorf("results = %+v, want those of both that were measured", got.Results)
	}
}

func TestAMeasurementFailsWhereAPromiseIsBrokenAndOnDemandWhereATargetIsMissed(t *testing.T) {
	slow, broken := &aResult{Value: 2}, &aResult{Value: 0.5, broken: errors.New("1 was lost")}
	for name, c := range map[string]struct {
		part    *benchPart
		args    []string
		ctx     func(context.Context) context.Context
		stdout  string
		failure string
	}{
		"a target is missed":            {part: aPart("x", slow, nil), stdout: "a table\n"},
		"and is asked for":              {part: aPart("x", slow, nil), args: []string{"--strict"}, stdout: "a table\n", failure: "target missed: f: 2, not ≤ 1"},
		"a promise is broken":           {part: aPart("x", broken, nil), args: []string{"--json"}, stdout: "{\"value\":0.5}\n", failure: "1 was lost"},
		"nothing was measured":          {part: aPart("x", nil, errors.New("no room")), args: []string{"--json"}, failure: "no room"},
		"some was, before it failed":    {part: aPart("x", slow, errors.New("no room")), stdout: "a table\n", failure: "no room"},
		"somebody has interrupted that": {part: aPart("x", slow, errors.New("a child has ended")), ctx: cancelled, stdout: "a table\n", failure: "interrupted before the end"},
		"or interrupts the end of it":   {part: aPart("x", slow, nil), ctx: cancelled, stdout: "a table\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			p := &program{getenv: func(string) string { return "" }, stdout: &stdout, stderr: &stderr}
			cmd := p.measuring(&cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}, func() (*benchPart, error) { return c.part, nil })
			cmd.SetArgs(append([]string{}, c.args...)) // nil would be those of the test
			ctx := t.Context()
			if c.ctx != nil {
				ctx = c.ctx(ctx)
			}
			failure := ""
			if err := cmd.ExecuteContext(ctx); err != nil {
				failure = err.Error()
			}
			if stdout.String() != c.stdout || failure != c.failure || stderr.Len() > 0 {
				t.Errorf("printed %q and failed with %q, want %q and %q; %q on stderr", stdout.String(), failure, c.stdout, c.failure, stderr.String())
			}
		})
	}
}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func TestAWirePassesEverythingOnAndEndsWithItsEnds(t *testing.T) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() { // says all back, until its client has said all
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c) // the client sees what is missing
			_ = c.Close()
		}
	}()
	w, err := newBenchWire(far.Addr().String(), 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", w.address())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial()
	said := strings.Repeat("all that is said ", 10_000)
	go func() { _, _ = io.WriteString(c, said) }() // what fails is missing
	back := make([]byte, len(said))
	if _, err := io.ReadFull(c, back); err != nil || string(back) != said {
		t.Fatalf("%d bytes came back, %v, want all %d as they were said", len(back), err, len(said))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	// One that is open ends with the wire.
	c = dial()
	defer c.Close()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, back[:1]); err != nil {
		t.Fatal(err)
	}
	w.close()
	if n, err := c.Read(back); err == nil {
		t.Errorf("%d bytes over a wire that is closed, want an end", n)
	}
}

func TestMessagesThatCostSomethingAreEachCountedOnce(t *testing.T) {
	once := func(numbers ...int) map[string]int {
		m := map[string]int{}
		for _, i := range numbers {
			m[benchID(i)]++
		}
		return m
	}
	letters := func(numbers ...int) (all []benchLetter) {
		for _, i := range numbers {
			all = append(all, benchLetter{MessageID: benchID(i)})
		}
		return all
	}
	c := benchCostCase{Sent: 7}
	// 0 and 1 are met, 2 and 3 missed, 4 is both, 5 nowhere, 6 was told of twice.
	c.tally(once(0, 1, 4), once(2, 3, 4, 6, 6), letters(2, 3, 4, 6))
	want := benchCostCase{Sent: 7, Met: 3, Missed: 4, Lost: 1, Twice: 2}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
	r := &benchCostResult{Cases: []*benchCostCase{{Sent: 7, Met: 5, Missed: 2}}}
	if err := r.verdict(); err != nil {
		t.Errorf("verdict where consumers were too slow = %v, want none", err)
	}
	r.Cases = append(r.Cases, &c)
	if err := r.verdict(); err == nil || err.Error() != "of 7 messages 1 were lost\nof 7 messages 2 came or were told twice" {
		t.Errorf("verdict = %v, want what is wrong with the second", err)
	}
}

func TestALookSaysWhatBecameOfWhom(t *testing.T) {
	enqueued := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	due := map[string]time.Duration{}
	var letters []benchLetter
	for i := range 5 {
		due[benchID(i)] = time.Duration(i+1) * time.Second
		lag := []time.Duration{5, 20, -1, 7, 9}[i] * time.Millisecond
		letters = append(letters, benchLetter{MessageID: benchID(i), EnqueuedTime: enqueued, DeadLetteredTime: enqueued.Add(due[benchID(i)] + lag)})
	}
	told := map[string]int{benchID(0): 1, benchID(1): 2, benchID(2): 1}
	c := benchLookCase{Live: 100, Overdue: 5}
	c.tally(due, told, letters[:4], 98)
	want := benchLookCase{Live: 100, Overdue: 5, DeadLettered: 4, Told: 3, Early: 1, Twice: 1, Disturbed: 2, LagMs: lag.Milliseconds{P50: 5, P99: 20, Max: 20}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
	all := "of 5 messages among 100 1 were not dead-lettered\nof 5 messages among 100 1 were dead-lettered and not told of\n" +
		"of 5 messages among 100 1 were dead-lettered before their deadline\nof 5 messages among 100 1 were dead-lettered or told twice\n" +
		"of 5 messages among 100 2 live ones are gone"
	r := &benchLookResult{Cases: []*benchLookCase{{Live: 10, Overdue: 1, DeadLettered: 1, Told: 1}, &c}}
	if err := r.verdict(); err == nil || err.Error() != all {
		t.Errorf("verdict = %v, want\n%s", err, all)
	}
}

func TestRatiosAreOfOneRound(t *testing.T) {
	direct := []benchSendRound{{rate: 100, client: 6, broker: 4}, {rate: 1000, client: 6, broker: 4}, {rate: 10, client: 6, broker: 4}}
	through := []benchSendRound{{rate: 50, client: 6, sidecar: 10, broker: 4}, {rate: 900, client: 6, sidecar: 10, broker: 4}, {rate: 8, client: 6, sidecar: 10, broker: 4}}
	got := newBenchSendLine(benchSendKinds[0], wayEach, through, direct)
	if got.Ratio != 0.8 || got.RatioSpread != [2]float64{0.5, 0.9} || got.Cost != 0.5 || got.MessagesPerSecond != 50 || got.SidecarMicros != 10 {
		t.Errorf("line = %+v, want the median of the ratios 0.5, 0.9 and 0.8, half as many for the same processor time, 50 a second", got)
	}
}
