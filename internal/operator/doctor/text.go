// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"overdue/internal/escape"
	"overdue/internal/plural"
	"overdue/internal/terminal"
)

// colors are the SGR parameters of severities on a terminal.
var colors = map[Severity]string{OK: "32", Unknown: "36", Advice: "34", Warning: "33", Error: "1;31"}

// withoutNamespace stands for the namespace where there was none to examine.
const withoutNamespace = "configuration without a namespace"

const (
	// summaryIndent is the width of what stands before a summary, fixIndent that of what stands
	// before a fix.
	summaryIndent = len("  warning  ")
	fixIndent     = summaryIndent + len("fix: ")
)

// WriteText writes a line for each check, below its subject, and below that the fix if there is
// one. The worst findings come first. It escapes what comes from outside. width is that of the
// terminal: longer sentences are broken, but commands stay whole. 0 means that nothing is broken.
func (r *Report) WriteText(w io.Writer, color bool, width int) error {
	return r.writeText(w, r.worstFirst(), color, width)
}

// writeText writes some of the findings, and counts all of them.
func (r *Report) writeText(w io.Writer, shown []Finding, color bool, width int) error {
	var b bytes.Buffer
	subject := ""
	for i := range shown {
		f := &shown[i]
		if f.Subject != subject {
			subject = f.Subject
			fmt.Fprintf(&b, "\n%s\n", escape.Text(subject))
		}
		mark := fmt.Sprintf("%-8s", f.Severity)
		if color {
			mark = "\x1b[" + colors[f.Severity] + "m" + mark + "\x1b[0m"
		}
		fmt.Fprintf(&b, "  %s %s\n", mark, terminal.Wrap(escape.Text(f.Summary), width, summaryIndent))
		if f.Fix != "" {
			text := escape.Text(f.Fix)
			if f.Fixable {
				text += "  (overdue doctor --fix does it)"
			}
			if !isCommand(f.Fix) {
				text = terminal.Wrap(text, width, fixIndent)
			}
			fmt.Fprintf(&b, "%*sfix: %s\n", summaryIndent, "", text)
		}
	}
	var counts []string
	for _, s := range []Severity{Error, Warning, Advice, Unknown} {
		if n := r.Count(s); n > 0 {
			counts = append(counts, counted(n, s))
		}
	}
	if len(counts) == 0 {
		counts = []string{"nothing to fix"}
	}
	fmt.Fprintf(&b, "\n%s: %s.\n", escape.Text(cmp.Or(r.Namespace, withoutNamespace)), strings.Join(counts, ", "))
	_, err := b.WriteTo(w)
	return err
}

// isCommand reports whether people can paste a fix into a shell or into redis-cli.
func isCommand(fix string) bool {
	return strings.HasPrefix(fix, "az ") || strings.HasPrefix(fix, "ACL ") || strings.HasPrefix(fix, "CONFIG ")
}

// counted returns in words how many findings of a severity there are.
func counted(n int, s Severity) string {
	switch s {
	case Unknown:
		return fmt.Sprintf("%d not checked", n)
	case Advice:
		return plural.Of(n, "piece of advice", "pieces of advice")
	}
	return plural.Of(n, s.String(), s.String()+"s")
}
