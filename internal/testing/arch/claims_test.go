// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A figure that is stated in two places, a page and what keeps it, or a target and the test that
// holds it, is one figure.
func TestPagesAndTestsStateTheSameFigures(t *testing.T) {
	type place struct{ file, pattern string } // the pattern has the figure as its group
	for claim, places := range map[string][]place{
		"connections of the embedded broker": {
			{"docs/broker/README.md", `\| connections \| ([\d,]+) \|`},
			{"internal/config/settings.go", `Path: "listen\.maxConnections", Kind: kindCount, Default: "(\d+)"`},
		},
		"queues and topics of a namespace": {
			{"docs/broker/README.md", `\| queues and topics \| ([\d,]+) in a namespace`},
			{"internal/broker/config.go", `DefaultMaxEntities\s*= ([\d_]+)`},
		},
		"KiB of a message": {
			{"docs/broker/README.md", `\| size of a message \| (\d+) KiB;`},
			{"internal/config/settings.go", `Path: "broker\.maxMessageSize", Kind: kindSize, Default: "(\d+)KiB"`},
			{"internal/broker/config.go", `DefaultMaxMessageSize\s*= (\d+) << 10`},
		},
		"MiB of a message at most": {
			{"docs/broker/README.md", `\| size of a message \| [^|]*up to (\d+) MiB`},
			{"internal/config/settings.go", `Path: "broker\.maxMessageSize"[^}]*max: (\d+) << 20`},
		},
		"ms of a slot": {
			{"docs/reference/companion.md", `whose deadlines fall into the same (\d+) ms`},
			{"docs/internals/scheduler.md", `whose deadlines fall into its (\d+) ms`},
			{"scheduler/scheduler.go", `slot\s+= (\d+) \* time\.Millisecond`},
		},
		"ms between a companion and its slot": {
			{"docs/reference/companion.md", `becomes due (\d+) ms before`},
			{"scheduler/scheduler.go", `slotLead\s+= (\d+) \* time\.Millisecond`},
		},
	} {
		figures := map[float64]bool{}
		for _, p := range places {
			text, err := os.ReadFile(filepath.Join("../../..", filepath.FromSlash(p.file)))
			if err != nil {
				t.Fatal(err)
			}
			m := regexp.MustCompile(p.pattern).FindAllStringSubmatch(string(text), -1)
			if len(m) != 1 {
				t.Errorf("%s: %s states it %d times, want once: %s", claim, p.file, len(m), p.pattern)
				continue
			}
			figure, err := strconv.ParseFloat(strings.NewReplacer(",", "", "_", "").Replace(m[0][1]), 64)
			if err != nil {
				t.Errorf("%s: %s: %v", claim, p.file, err)
			}
			figures[figure] = true
		}
		if len(figures) != 1 {
			t.Errorf("%s: the figures are %v, want one", claim, figures)
		}
	}
}
