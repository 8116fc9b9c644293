// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// outcome is how a test ended.
type outcome string

// The outcomes, in the words of test2json.
const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// result is how one test or subtest ended.
type result struct {
	Package string
	Name    string // of a subtest with the names of its parents: TestA/b
	Outcome outcome
	Elapsed time.Duration
	Output  string
}

// testTimeout bounds one test. The slowest takes less than a minute; what takes longer
// hangs, and go test then prints where.
const testTimeout = 5 * time.Minute

// execute runs the test binary of a package and returns what became of each test and subtest
// that has no subtests. The error says that the binary itself failed; output is what it
// wrote outside any test.
func execute(ctx context.Context, dir, pkg string, env []string, args ...string) (results []result, output string, err error) {
	binary := testBinary(dir, pkg)
	args = append([]string{"-t", "-p", pkg, binary, "-test.v=test2json", "-test.timeout=" + testTimeout.String()}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, eventsFile), args...)
	cmd.Dir = filepath.Join(dir, sdkDir, pkg)
	cmd.Env = env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	results, output, err = parseEvents(pkg, &stdout)
	if err != nil {
		return results, output + stderr.String(), err
	}
	var exit *exec.ExitError
	if runErr != nil && (!errors.As(runErr, &exit) || !anyFailed(results)) {
		return results, output + stderr.String(), runErr
	}
	return results, output, nil
}

func anyFailed(results []result) bool {
	for _, r := range results {
		if r.Outcome == failed {
			return true
		}
	}
	return false
}

// parseEvents reads what test2json writes. A test whose subtests are in the results is left out of
// them, unless it failed by itself: then none of its subtests counts. A test that has begun and not
// ended, because the process died, has failed.
func parseEvents(pkg string, events *bytes.Buffer) (results []result, output string, err error) {
	type state struct {
		result
		text     strings.Builder
		parent   bool
		childBad bool
	}
	var order []string
	tests := map[string]*state{}
	var outside strings.Builder
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, "", fmt.Errorf("output of test2json: %w in %.200q", err, lines.Text())
		}
		if e.Test == "" {
			outside.WriteString(e.Output)
			continue
		}
		t := tests[e.Test]
		if t == nil {
			t = &state{result: result{Package: pkg, Name: e.Test, Outcome: failed}}
			tests[e.Test] = t
			order = append(order, e.Test)
			for i, c := range e.Test {
				if p := tests[e.Test[:i]]; c == '/' && p != nil {
					p.parent = true
				}
			}
		}
		switch o := outcome(e.Action); o {
		case passed, failed, skipped:
			t.Outcome, t.Elapsed = o, time.Duration(e.Elapsed*float64(time.Second))
		}
		t.text.WriteString(e.Output)
	}
	if err := lines.Err(); err != nil {
		return nil, "", fmt.Errorf("output of test2json: %w", err)
	}
	// Children come after their parents in order, so from the end each parent knows.
	for i := len(order) - 1; i >= 0; i-- {
		t := tests[order[i]]
		if t.Outcome != failed {
			continue
		}
		for j, c := range t.Name {
			if p := tests[t.Name[:j]]; c == '/' && p != nil {
				p.childBad = true
			}
		}
	}
	for _, name := range order {
		t := tests[name]
		if t.parent && (t.Outcome != failed || t.childBad) {
			continue
		}
		t.Output = t.text.String()
		results = append(results, t.result)
	}
	return results, outside.String(), nil
}
