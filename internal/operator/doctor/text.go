// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"overdue/internal/escape"
)

// colours of severities on a terminal, by number of SGR.
var colours = map[Severity]string{OK: "32", Unknown: "36", Advice: "34", Warning: "33", Error: "1;31"}

// WriteText writes a line for each check, under its subject, and the fix of each that has one. What comes from outside is escaped;
// colours are not.
func (r *Report) WriteText(w io.Writer, colour bool) error {
	var b bytes.Buffer
	subject := ""
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Subject != subject {
			subject = f.Subject
			fmt.Fprintf(&b, "\n%s\n", escape.Text(subject))
		}
		mark := fmt.Sprintf("%-8s", f.Severity)
		if colour {
			mark = "\x1b[" + colours[f.Severity] + "m" + mark + "\x1b[0m"
		}
		fmt.Fprintf(&b, "  %s %s\n", mark, escape.Text(f.Summary))
		if f.Fix != "" {
			by := ""
			if f.Fixable {
				by = "  (overdue doctor --fix does it)"
			}
			fmt.Fprintf(&b, "           fix: %s%s\n", escape.Text(f.Fix), by)
		}
	}
	var counts []string
	for _, s := range []Severity{Error, Warning, Advice, Unknown} {
		if n := r.Count(s); n > 0 {
			counts = append(counts, counted(n, s))
		}
	}
	if len(counts) == 0 {
		counts = []string{"all is well"}
	}
	fmt.Fprintf(&b, "\n%s: %s.\n", escape.Text(r.Namespace), strings.Join(counts, ", "))
	_, err := b.WriteTo(w)
	return err
}

// counted is how many findings of a severity there are, in words.
func counted(n int, s Severity) string {
	one := map[Severity]string{Error: "error", Warning: "warning", Advice: "piece of advice", Unknown: "thing not checked"}[s]
	if n == 1 {
		return "1 " + one
	}
	many := map[Severity]string{Error: "errors", Warning: "warnings", Advice: "pieces of advice", Unknown: "things not checked"}[s]
	return fmt.Sprintf("%d %s", n, many)
}
