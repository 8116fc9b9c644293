// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFiguresStandNextToTheirTargets(t *testing.T) {
	figures := []Figure{
		Figure{Name: "rate", What: "sends ÷ direct"}.among([]float64{0.7, 0.9123456,
			1.1}).atLeast(0.8),
		Figure{Name: "lag", What: "late by", Value: 50.04, Unit: "ms"}.atMost(50),
		{Name: "even", What: "of two rounds", Value: 0.00049, Unit: "s"},
		Figure{Name: "start", What: "start", Unit: "ms"}.among([]float64{123.4, 120}).atMost(200),
	}
	want := `                           measured    target  met
sends ÷ direct   0.912 (0.7 to 1.1)     ≥ 0.8  yes
late by                       50 ms   ≤ 50 ms   no
of two rounds                   0 s
start           122 ms (120 to 123)  ≤ 200 ms  yes
`
	if diff := cmp.Diff(want, tableOfFigures(figures)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if err := MissedTargets(figures); err == nil ||
		err.Error() != "target missed: late by: 50 ms, not ≤ 50 ms" {
		t.Errorf("MissedTargets = %v, want the one that is missed", err)
	}
	if err := MissedTargets(figures[2:]); err != nil {
		t.Errorf("MissedTargets of what has met its targets = %v, want none", err)
	}
}
