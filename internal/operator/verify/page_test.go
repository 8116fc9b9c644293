// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"overdue/internal/broker/quirk"
	"overdue/internal/testing/generated"
)

var update = flag.Bool("update", false, "write what is generated of the page instead of comparing with it")

const page = "../../../docs/internals/servicebus.md"

// The page on Service Bus has to show the tables of assumptions and of quirks, and the pages for users how certain they are.
func TestPagesShowTheAssumptions(t *testing.T) {
	generated.Check(t, page, *update, map[string]string{"assumptions": assumptionsTable(), "quirks": quirksTable()})
	for _, page := range []string{"../../../README.md", "../../../docs/start/namespace.md"} {
		generated.Check(t, page, *update, map[string]string{"certainty": certainty() + "\n"})
	}
}

func assumptionsTable() string {
	var b strings.Builder
	b.WriteString("| id | assumed | mark | source | guarantees | if it is otherwise |\n|---|---|---|---|---|---|\n")
	for i := range Assumptions {
		a := &Assumptions[i]
		id := "`" + a.ID + "`"
		if !a.Tried() {
			id = a.ID + " (not tried: " + a.untried + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", id, a.What, a.Mark, a.Source, onWhat(a.Guarantees), a.Otherwise)
	}
	return b.String()
}

func quirksTable() string {
	var b strings.Builder
	b.WriteString("| quirk | what such a broker does | assumption |\n|---|---|---|\n")
	for _, q := range quirk.All {
		for i := range Assumptions {
			if a := &Assumptions[i]; a.Quirk == q.Set {
				fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", q.Name, q.Help, a.ID)
			}
		}
	}
	return b.String()
}

func onWhat(guarantees string) string {
	if guarantees == "" {
		return "cost only"
	}
	return guarantees
}

// certainty says in a sentence how certain the assumptions are, and names those that only we infer.
func certainty() string {
	count := map[Mark]int{}
	var inferred []string
	for i := range Assumptions {
		a := &Assumptions[i]
		count[a.Mark]++
		if a.Mark == Inferred {
			inferred = append(inferred, "`"+a.ID+"`")
		}
	}
	return fmt.Sprintf("Overdue rests on %d assumptions about Service Bus. Microsoft documents %d, and SDKs, traces or reports show %d. Only we infer the other %d: %s.",
		len(Assumptions), count[Documented], count[ReliedOn]+count[Reported], len(inferred), strings.Join(inferred, ", "))
}
