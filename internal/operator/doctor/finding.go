// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
)

// Severity says how much a finding matters.
type Severity uint8

// The severities, the mildest first.
const (
	OK      Severity = iota // it is as it should be
	Unknown                 // it could not be checked
	Advice                  // it works, and could work better or cost less
	Warning                 // some deadlines are noticed late, or not at all
	Error                   // deadlines are not kept, or nothing works
)

var severities = [...]string{"ok", "unknown", "advice", "warning", "error"}

// String is the severity as it is printed, in JSON as well.
func (s Severity) String() string { return severities[s] }

// MarshalText is String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severities[:], string(text))
	if i < 0 {
		return fmt.Errorf("doctor: %q is no severity", text)
	}
	*s = Severity(i)
	return nil
}

// A Finding is what came of one check.
type Finding struct {
	Subject  string   `json:"subject"` // what was looked at: "namespace", "queue orders"
	Check    string   `json:"check"`   // a stable name, such as dead-lettering
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"`       // one sentence
	Fix      string   `json:"fix,omitempty"` // a command or a setting; "" = nothing to do
	Fixable  bool     `json:"fixable"`       // by Apply

	repair *Repair
}

// A Report is all findings of one examination, those of one subject together.
type Report struct {
	Namespace string    `json:"namespace"`
	Findings  []Finding `json:"findings"`
}

// Worst is the highest severity of the report.
func (r *Report) Worst() Severity {
	worst := OK
	for i := range r.Findings {
		worst = max(worst, r.Findings[i].Severity)
	}
	return worst
}

// Count is how many findings have the severity.
func (r *Report) Count(s Severity) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// Repairs are the changes that would cure findings, one for each entity, in the order of the report.
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

// notes gathers findings about one subject.
type notes struct {
	subject string
	all     []Finding
}

func (n *notes) add(s Severity, check, summary, fix string) *Finding {
	n.all = append(n.all, Finding{Subject: n.subject, Check: check, Severity: s, Summary: summary, Fix: fix})
	return &n.all[len(n.all)-1]
}

// cure adds a finding that a change of a setting of the entity cures.
func (n *notes) cure(s Severity, check, summary string, c change) {
	f := n.add(s, check, summary, c.command())
	if c.ours {
		f.Fixable = true
		f.repair = &Repair{Entity: c.entity, Subscription: c.subscription, Set: []Setting{{c.property, c.value}}}
	}
}
