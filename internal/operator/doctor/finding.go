// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"overdue/internal/escape"
	"overdue/internal/plural"
	"overdue/internal/terminal"
	"overdue/internal/version"
)

// Severity says how much a finding matters.
type Severity uint8

// The severities, the mildest first.
const (
	OK      Severity = iota // nothing to do
	Unknown                 // it could not be checked
	Advice                  // it could work better, or cost less
	Warning                 // some deadlines are noticed late, or never
	Error                   // deadlines are not monitored, or nothing works
)

var severities = [...]string{"ok", "unknown", "advice", "warning", "error"}

// String returns the severity as text and JSON have it.
func (s Severity) String() string { return severities[s] }

// MarshalText returns String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Finding is the outcome of one check.
type Finding struct {
	Subject  string   `json:"subject"` // such as "namespace" or "queue orders"
	Check    string   `json:"check"`   // a stable name, such as dead-lettering
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"`       // one sentence
	Fix      string   `json:"fix,omitempty"` // a command or what to set; "" = nothing to do
	Fixable  bool     `json:"fixable"`       // Apply can do it

	repair *Repair
}

// A Report has all findings of one examination. Those of one subject stand together.
type Report struct {
	Namespace string    `json:"namespace"`
	Findings  []Finding `json:"findings"`
}

// subjectsOf names what findings are about, each once.
func subjectsOf(all []Finding) (subjects []string) {
	for i := range all {
		if s := all[i].Subject; !slices.Contains(subjects, s) {
			subjects = append(subjects, s)
		}
	}
	return subjects
}

// worstFirst returns the findings in the order of text: the subjects with the worst findings first,
// and of each subject the worst findings first.
func (r *Report) worstFirst() []Finding {
	all := slices.Clone(r.Findings)
	worst := map[string]Severity{}
	for i := range all {
		worst[all[i].Subject] = max(worst[all[i].Subject], all[i].Severity)
	}
	subjects := subjectsOf(all)
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(worst[b.Subject], worst[a.Subject]), slices.Index(subjects, a.Subject)-slices.Index(subjects, b.Subject), cmp.Compare(b.Severity, a.Severity))
	})
	return all
}

// errors returns a report with the errors alone.
func (r *Report) errors() *Report {
	return &Report{Namespace: r.Namespace, Findings: slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity < Error })}
}

// Count returns how many findings have the severity.
func (r *Report) Count(s Severity) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// unread names what has settings that could not be read, so that nobody knows what to change there.
func (r *Report) unread() []string {
	return subjectsOf(slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		return f.Severity != Unknown || !slices.Contains([]string{"administration", "settings", "list"}, f.Check)
	}))
}

// Repairs returns the changes that fix findings, one for each entity, in the order of the report.
func (r *Report) Repairs() []*Repair {
	var all []*Repair
	for i := range r.Findings {
		p := r.Findings[i].repair
		if p == nil {
			continue
		}
		if at := slices.IndexFunc(all, func(o *Repair) bool { return o.Entity == p.Entity && o.Subscription == p.Subscription }); at >= 0 {
			all[at].merge(p)
			continue
		}
		c := *p
		c.Set = slices.Clone(p.Set)
		all = append(all, &c)
	}
	return all
}

// notes collects the findings of one subject.
type notes struct {
	subject string
	all     []Finding
}

func (n *notes) add(s Severity, check, summary, fix string) *Finding {
	n.all = append(n.all, Finding{Subject: n.subject, Check: check, Severity: s, Summary: summary, Fix: version.Doc(fix)})
	return &n.all[len(n.all)-1]
}

// addChange adds a finding that a change of the entity fixes.
func (n *notes) addChange(s Severity, check, summary string, c change) {
	f := n.add(s, check, summary, c.command())
	if c.applicable {
		f.Fixable = true
		f.repair = &Repair{Entity: c.entity, Subscription: c.subscription, Set: []Setting{{c.property, c.value}}}
	}
}

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

// writeText writes a line for each finding that is shown, below its subject, and below that the fix
// if there is one. It counts all findings, and escapes what comes from outside. width is that of
// the terminal: longer sentences are broken, but commands stay whole. 0 means that nothing is
// broken.
func (r *Report) writeText(w io.Writer, shown []Finding, color bool, width int) error {
	var b bytes.Buffer
	subject := ""
	for i := range shown {
		f := &shown[i]
		if f.Subject != subject {
			subject = f.Subject
			fmt.Fprintf(&b, "\n%s\n", escape.Text(subject))
		}
		mark := terminal.Paint(color, colors[f.Severity], fmt.Sprintf("%-8s", f.Severity))
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
