// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// build writes the sources with the mutants in them and compiles them. A mutant that does not
// compile, because a constant does not fit where it stands now, is left out.
func (p *pkg) build(ctx context.Context, dir string) error {
	place := regexp.MustCompile(`(?m)^\S*?([\w.]+\.go):(\d+):\d+:`)
	for range 20 {
		if err := p.write(dir); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, "go", "build", "-gcflags=-e", "-overlay", p.overlay, p.path).CombinedOutput()
		if err == nil {
			p.mutants = slices.DeleteFunc(p.mutants, func(m *mutant) bool { return m.edits == nil })
			return nil
		}
		dropped := 0
		for _, m := range place.FindAllStringSubmatch(string(out), -1) {
			for _, mutant := range p.mutants {
				if mutant.edits != nil && mutant.file == m[1] && strconv.Itoa(mutant.line) == m[2] {
					mutant.edits = nil
					dropped++
				}
			}
		}
		if dropped == 0 {
			return fmt.Errorf("the mutants do not compile: %s", out)
		}
	}
	return errors.New("the mutants do not compile")
}

// A suite is a test binary with the mutants in it.
type suite struct {
	binary, dir string
	flags       []string
	reached     map[int][]string // the tests that reach a mutant
	took        map[string]time.Duration
}

// baselineTime bounds one test of a baseline.
const baselineTime = 2 * time.Minute

// suite compiles the tests of a package and runs each alone.
func (p *pkg) suite(ctx context.Context, dir, path, tests string) (*suite, error) {
	s := &suite{binary: filepath.Join(dir, strings.ReplaceAll(path, "/", "-")+".test"), reached: map[int][]string{}, took: map[string]time.Duration{}}
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", p.overlay, "-o", s.binary, path).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w\n%s", path, err, out)
	}
	where, err := exec.CommandContext(ctx, "go", "list", "-f", `{{.Dir}}{{"\n"}}{{.TestImports}} {{.XTestImports}}`, path).Output()
	if err != nil {
		return nil, err
	}
	var imports string
	s.dir, imports, _ = strings.Cut(string(where), "\n")
	if strings.Contains(imports, "pgregory.net/rapid") {
		s.flags = []string{"-rapid.nofailfile"} // a test that a mutant fails leaves nothing behind
	}
	list, err := s.command(ctx, "-test.list", tests).Output()
	if err != nil {
		return nil, err
	}
	for _, test := range strings.Fields(string(list)) {
		if !strings.HasPrefix(test, "Test") {
			continue
		}
		hits := filepath.Join(dir, "hits")
		cmd := s.command(ctx, "-test.run", "^"+test+"$", "-test.timeout", baselineTime.String())
		cmd.Env = append(os.Environ(), "OVERDUE_MUTANT_HITS="+hits)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			fmt.Printf("  %s fails without any mutant and is left out: %.300s\n", test, out)
		}
		s.took[test] = time.Since(began)
		text, readErr := os.ReadFile(hits)
		if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			return nil, readErr
		}
		_ = os.Remove(hits) // the next test has one of its own
		for _, line := range strings.Fields(string(text)) {
			id, convErr := strconv.Atoi(line)
			if convErr == nil && err == nil {
				s.reached[id] = append(s.reached[id], test)
			}
		}
	}
	return s, nil
}

func (s *suite) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.binary, append(slices.Clone(s.flags), args...)...)
	cmd.Dir = s.dir
	return cmd
}

// try runs the tests that reach a mutant, the quickest first, with the mutant on.
func (s *suite) try(ctx context.Context, m *mutant) (fate string, err error) {
	tests := slices.Clone(s.reached[m.id])
	slices.SortFunc(tests, func(a, b string) int { return int(s.took[a] - s.took[b]) })
	for part := range slices.Chunk(tests, 10) {
		limit := 10 * time.Second
		for _, test := range part {
			limit += 5 * s.took[test]
		}
		cmd := s.command(ctx, "-test.failfast", "-test.run", "^("+strings.Join(part, "|")+")$", "-test.timeout", limit.String())
		cmd.Env = append(os.Environ(), "OVERDUE_MUTANT="+strconv.Itoa(m.id))
		out, err := cmd.CombinedOutput()
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil && bytes.Contains(out, []byte("panic: test timed out")):
			return timedOut, nil
		case err != nil:
			return killed, nil
		}
	}
	return survived, nil
}
