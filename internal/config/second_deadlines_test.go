// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSecondDeadlinesAndWarningsOfAnEntity(t *testing.T) {
	const entity = "broker: {autoCreate: true}\nmonitor: {entities: [{queue: q, "
	for name, tt := range map[string]struct{ text, want string }{
		"completed before it is received": {entity + "deadline: 30s, completeWithin: PT30S}]}\n", "overdue.yaml:2: monitor.entities[0].completeWithin is 30s, and deadline is 30s: a message has to be received before"},
		"a warning of nothing":            {entity + "warnBefore: [30s, 0s]}]}\n", "monitor.entities[0].warnBefore: 0s is out of bounds"},
		"a warning without a unit":        {entity + "warnBefore: 30}]}\n", `monitor.entities[0].warnBefore: "30" has no unit`},
		"too many warnings":               {entity + "warnBefore: \"1s,2s,3s,4s,5s,6s,7s,8s,9s\"}]}\n", "monitor.entities[0].warnBefore has 9 durations; give at most 8"},
		"an interval of nothing":          {entity + "adoptEvery: 5s}]}\n", "overdue.yaml:2: monitor.entities[0].adoptEvery is given and adopt is not"},
		"an interval without end":         {entity + "adopt: true, adoptEvery: 0s}]}\n", "monitor.entities[0].adoptEvery: 0s is out of bounds"},
		"events that there are not":       {"alerts: [{events: [late], slack: {url: \"http://x\"}}]\n", `overdue.yaml:1: alerts[0].events: there are no events called "late"; choose from missed, incomplete, near`},
	} {
		if _, err := load(t, tt.text, nil, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	for _, text := range []string{"warnBefore: [1m30s, PT5S]", "warnBefore: 90s, deadline: 2m", `warnBefore: "90s, 5s"`} {
		c, err := load(t, entity+"completeWithin: 10m, "+text+"}]}\nalerts: [{events: \"missed,near\", slack: {url: \"http://x\"}}]\n", nil, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want := []time.Duration{90 * time.Second, 5 * time.Second}
		if strings.Contains(text, "deadline") {
			want = want[:1]
		}
		e := c.Monitor.Entities[0]
		if diff := cmp.Diff(want, e.WarnBefore); diff != "" || e.CompleteWithin != 10*time.Minute {
			t.Errorf("%s: completeWithin %v, warnBefore (-want +got):\n%s", text, e.CompleteWithin, diff)
		}
		if got := strings.Join(c.Alerts[0].Events, " "); got != "missed near" {
			t.Errorf("events = %q, want missed near", got)
		}
	}
}
