// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"overdue/internal/lag"
	"overdue/internal/plural"
)

// Result is what --json prints.
type Result struct {
	Eager struct {
		Sent         int              `json:"sent"`
		DeadLettered int              `json:"deadLettered"`
		LagMs        lag.Milliseconds `json:"lagMs"`
	} `json:"eager"`
	Lazy struct {
		Sent                      int `json:"sent"`
		DeadLetteredBeforeReceive int `json:"deadLetteredBeforeReceive"`
		DeadLetteredAfterReceive  int `json:"deadLetteredAfterReceive"`
	} `json:"lazy"`

	waited time.Duration // from the first send to the one receive
	early  int           // dead-lettered before their deadline
}

// setLags fills in the percentiles and counts what came too early.
func (r *Result) setLags(lags []time.Duration) {
	r.Eager.LagMs, r.early = lag.Of(lags), lag.Early(lags)
}

// Verdict is an error unless every watched message was dead-lettered, and none early.
func (r *Result) Verdict() error {
	switch {
	case r.Eager.DeadLettered != r.Eager.Sent:
		return fmt.Errorf("of %s %s dead-lettered in time", plural.Of(r.Eager.Sent, "watched message", "watched messages"), plural.Of(r.Eager.DeadLettered, "was", "were"))
	case r.early > 0:
		return errors.New(plural.Of(r.early, "watched message was dead-lettered before its deadline", "watched messages were dead-lettered before their deadline"))
	}
	return nil
}

// WriteJSON is a contract: scripts read it. Fields are added, never renamed.
func (r *Result) WriteJSON(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// WriteTable is for somebody who sees all this for the first time.
func (r *Result) WriteTable(w io.Writer) error {
	var b strings.Builder
	row := func(cells ...any) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-30s %-22v %v", cells...), " ") + "\n")
	}
	ms := func(v float64) string { return fmt.Sprintf("%.1f ms", v) }
	still := fmt.Sprintf("still waiting after %.0f s", r.waited.Seconds())
	if r.Lazy.DeadLetteredBeforeReceive > 0 {
		still = "not measured"
	}
	b.WriteString("\n")
	row("", "watched by Overdue", "left to itself")
	row("sent", r.Eager.Sent, r.Lazy.Sent)
	row("received by a consumer", 0, 0)
	row("dead-lettered by themselves", r.Eager.DeadLettered, r.Lazy.DeadLetteredBeforeReceive)
	row("how late: half of them within", ms(r.Eager.LagMs.P50), still)
	row("          99 of 100 within", ms(r.Eager.LagMs.P99), "")
	row("          the last within", ms(r.Eager.LagMs.Max), "")
	row("what it took to get them out", "nothing", fmt.Sprintf("one receive, then %d", r.Lazy.DeadLetteredAfterReceive))
	b.WriteString("\nTo try it with an app: overdue run\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
