// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"strings"

	"overdue/internal/terminal"
	"overdue/internal/version"
)

// WriteText writes the plan for people. price is that of a million operations; 0: none is computed.
func (p *Plan) WriteText(w io.Writer, width int, price float64) error {
	l := p.Load
	fmt.Fprintf(w, "%s messages a second on %s, deadline %v, %.3g%% missed, %s tier, companions: %s\n\n",
		count(l.Rate), queues(l.Queues), l.Deadline, l.Missed*100, l.Tier, p.Companions)
	right := func(text string) string { return fmt.Sprintf("%18s", text) }
	titles := []string{"operations", right("a second"), right("a month")}
	if price > 0 {
		titles = append(titles, right("price of a month"))
	}
	t := terminal.NewTable(width, titles...)
	for _, row := range []struct {
		what       string
		operations float64
	}{
		{"the app: send and receive", p.App},
		{"Overdue: deadlines that are met", p.Met}, {"Overdue: deadlines that are missed", p.Missed},
	} {
		cells := []any{row.what, right(count(row.operations)), right(count(row.operations * SecondsPerMonth))}
		if price > 0 {
			cells = append(cells, right(fmt.Sprintf("%.2f", row.operations*SecondsPerMonth/1e6*price)))
		}
		t.Add(cells...)
	}
	if err := t.Flush(w); err != nil {
		return err
	}
	if l.MonitorQueues == 1 {
		fmt.Fprintf(w, "\nmonitor queue   %s companions, %s, at most\n", count(p.Outstanding), size(p.MonitorQueueSize))
	} else {
		fmt.Fprintf(w, "\nmonitor queues  %d with %s companions together, the fullest of them %s, at most\n", l.MonitorQueues, count(p.Outstanding), size(p.MonitorQueueSize))
	}
	fmt.Fprintf(w, "proxies         %.2f cores together; %s of memory if one of them sends everything\n", p.ProxyCores, size(p.ProxyMemory))
	fmt.Fprintf(w, "monitors        %d, so that one may fail; %.2f cores together, %s of memory each\n", p.Monitors, p.MonitorCores, size(p.MonitorMemory))
	for i := range p.Limits {
		limit := &p.Limits[i]
		fmt.Fprintf(w, "limit           %s: %s used (%s)\n", limit.Name, percent(limit.Share()), limit.Source)
	}
	var said strings.Builder
	switch l.Tier {
	case Basic:
		said.WriteString("The Basic tier has no scheduled messages: companions are kept in Redis (companionStore: redis), which costs no operations.")
	case Premium:
		said.WriteString("The Premium tier has no documented limit of operations: measure your messaging units with `overdue bench`.")
	default:
		fmt.Fprintf(&said, "With this share of missed deadlines the tier carries up to %s messages a second.", count(p.StopsAt))
	}
	if p.MonitorQueueSize > newQueueBytes {
		fmt.Fprintf(&said, " A queue has %s unless you state more when you create it: give more to the %s.", size(newQueueBytes), p.fullestQueue())
	}
	said.WriteString(version.Doc(" Figures are estimates on the high side: docs/operate/capacity.md says what they rest on."))
	_, err := fmt.Fprintf(w, "\n%s\n", terminal.Wrap(said.String(), width, 0))
	return err
}

// count is a number with three significant digits or more, and commas.
func count(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 9.995:
		return fmt.Sprintf("%.2f", n)
	}
	digits := fmt.Sprintf("%.0f", n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func queues(n int) string {
	if n == 1 {
		return "1 queue"
	}
	return count(float64(n)) + " queues"
}

func percent(share float64) string {
	if share < 0.01 {
		return "less than 1%"
	}
	return fmt.Sprintf("%.0f%%", share*100)
}

func size(bytes float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.3g TiB", bytes)
}
