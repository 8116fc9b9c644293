// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"overdue/internal/escape"
	"overdue/internal/plural"
	"overdue/internal/terminal"
)

// Announce says what trials cost, before they begin.
func Announce(w io.Writer, host string, width int, only ...string) error {
	tried, operations := 0, 0
	for _, a := range chosen(only) {
		if a.Tried() {
			tried++
			operations += a.operations
		}
	}
	text := fmt.Sprintf("This tries %s about Service Bus in %s, on queues of its own (overdue-verify-…), which it removes. "+
		"It takes about %s and at most %s. It needs the Manage right, and touches nothing else.",
		plural.Of(tried, "assumption", "assumptions"), host, plural.Of(operations, "operation", "operations"), "5 minutes")
	_, err := fmt.Fprintln(w, terminal.Wrap(text, width, 0))
	return err
}

// colors are the SGR parameters of verdicts on a terminal.
var colors = map[Verdict]string{AsAssumed: "32", Unknown: "36", Otherwise: "1;31"}

// verdictIndent is the width of what stands before an assumption, and detailIndent that of what
// stands before a remark on it.
const (
	verdictIndent = len("  could not tell  ")
	detailIndent  = verdictIndent + len("program: ")
)

// WriteText writes a paragraph for each result: what is otherwise first, what is as assumed last.
// It escapes what comes from outside. w must not escape, because it gets colors.
func (r *Report) WriteText(w io.Writer, color bool, width int) error {
	var b strings.Builder
	for _, v := range []Verdict{Otherwise, Unknown, AsAssumed} {
		for _, x := range r.Results {
			if x.Verdict == v {
				x.write(&b, color, width)
			}
		}
	}
	tier := ""
	if r.Tier != "" {
		tier = ", tier " + r.Tier
	}
	fmt.Fprintf(&b, "\n%d as assumed, %d otherwise, %d unknown; %s in %.1f s%s\n",
		r.Count(AsAssumed), r.Count(Otherwise), r.Count(Unknown), plural.Of(r.Operations, "operation", "operations"), r.Seconds, escape.Text(tier))
	_, err := io.WriteString(w, b.String())
	return err
}

func (x *Result) write(b *strings.Builder, color bool, width int) {
	verdict := fmt.Sprintf("%-*s", verdictIndent-4, x.Verdict)
	if color {
		verdict = "\x1b[" + colors[x.Verdict] + "m" + verdict + "\x1b[0m"
	}
	fmt.Fprintf(b, "  %s  %s  %s\n", verdict, x.ID, cmp.Or(x.Guarantees, "–"))
	line := func(label, text string) {
		text = terminal.Wrap(escape.Text(text), width, detailIndent)
		fmt.Fprintf(b, "%*s%-*s%s\n", verdictIndent, "", detailIndent-verdictIndent, label, text)
	}
	if x.Verdict == AsAssumed {
		if x.Detail != "" {
			line("seen:", x.Detail)
		}
		return
	}
	line("assumed:", x.Assumption)
	line("seen:", x.Detail)
	if x.Verdict == Otherwise {
		line("program:", x.Program)
	}
}

// Err is the error of the exit code: nil unless an assumption is wrong, or none of those that can
// be tried could be. With strict it is nil only if all of them are as assumed.
func (r *Report) Err(strict bool) error {
	unknown, tried := 0, 0
	for _, x := range r.Results {
		if slices.Contains(IDs(), x.ID) {
			tried++
			if x.Verdict == Unknown {
				unknown++
			}
		}
	}
	switch n := r.Count(Otherwise); {
	case n > 0:
		return fmt.Errorf("%s otherwise here", plural.Of(n, "assumption about Service Bus is", "assumptions about Service Bus are"))
	case strict && unknown > 0:
		return fmt.Errorf("%s could not be tried (--strict)", plural.Of(unknown, "assumption", "assumptions"))
	case unknown > 0 && unknown == tried:
		return fmt.Errorf("%s could not be tried, and no other was", plural.Of(unknown, "assumption", "assumptions"))
	}
	return nil
}
