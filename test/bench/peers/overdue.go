// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// root is the folder of the repository.
const root = "../../.."

// measureOverdue runs `overdue bench expire`, which measures by itself. A second row has how late
// the messages were dead letters.
func (p *plan) measureOverdue(ctx context.Context, one peer, dir string) ([]outcome, error) {
	version := "devel"
	if text, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--tags", "--dirty", "--always").Output(); err == nil {
		version = strings.TrimSpace(string(text))
	}
	binary := filepath.Join(dir, "overdue")
	build := exec.CommandContext(ctx, "go", "build", "-C", root, "-trimpath", "-ldflags",
		"-s -w -X overdue/internal/version.release="+version, "-o", binary, "./cmd/overdue")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build overdue: %w: %s", err, tail(string(out)))
	}
	bench := exec.CommandContext(ctx, binary, "bench", "expire", "--json", "--mixed=false", "--drained=false",
		"--outstanding", strconv.Itoa(p.n), "--deadline-range", fmt.Sprintf("%s-%s", p.shortest, p.longest))
	bench.Stderr = os.Stderr
	text, err := bench.Output()
	if err != nil {
		return nil, fmt.Errorf("overdue bench expire: %w", err)
	}
	var r struct {
		Cases []struct {
			LoadMs                                          float64
			LoadedBeforeFirstDue                            bool
			Early, Twice, Lost, Unnotified, FalselyNotified int
			LagMs, NotifiedLagMs                            *percentiles
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read what overdue bench expire prints: %w", err)
	}
	if len(r.Cases) != 1 || r.Cases[0].LagMs == nil || r.Cases[0].NotifiedLagMs == nil {
		return nil, errors.New("overdue bench expire prints no case with a lag of notifications")
	}
	c := r.Cases[0]
	notified := outcome{Name: one.name, How: one.how, Version: "Overdue " + version, LagMs: *c.NotifiedLagMs,
		Early: c.Early, Twice: c.Twice, Lost: c.Lost + c.Unnotified,
		LoadMs: c.LoadMs, LoadedBeforeFirstDue: c.LoadedBeforeFirstDue}
	dead := notified
	dead.Name, dead.How, dead.LagMs = one.name+"-dead-letter", "the same, until the message is dead-lettered", *c.LagMs
	dead.Lost = c.Lost
	return []outcome{notified, dead}, nil
}
