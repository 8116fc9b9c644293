// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"

	"overdue/monitor/intake"
	"overdue/monitor/metrics"
	"overdue/scheduler"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// absent is an entity that does not exist, with one of two watches of a companion.
func absent(t *testing.T) (*entity, *watch, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	m := metrics.New(prometheus.NewRegistry(), nil, nil)
	w := &Worker{metrics: m, intake: intake.New(intake.Config{Outstanding: m.Outstanding}), crowded: func() bool { return false }}
	content := scheduler.Companion{Entity: "orders", References: []scheduler.Reference{
		{MessageID: "a", Sent: noon, Deadline: noon, Stated: "deadline"}, {MessageID: "b", Sent: noon, Deadline: noon, Stated: "deadline"},
	}}
	body, _, err := content.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	watches := w.watchesOf(w.intake.Open(t.Context(), &intake.Lease{Body: body}))
	if n := w.intake.Watching(); n != 2 || len(watches) != 2 {
		t.Fatalf("%d watches, and %d are counted, want two", len(watches), n)
	}
	return &entity{w: w, key: "orders", name: "orders", log: zap.New(core)}, watches[0], logs
}

// A subscription that goes takes its messages along, which is nothing to warn of; a queue that
// goes is.
func TestADeletedSubscriptionIsNoWarning(t *testing.T) {
	for unlisted, level := range map[bool]zapcore.Level{true: zapcore.InfoLevel, false: zapcore.WarnLevel} {
		e, wt, logs := absent(t)
		e.settings.unlisted = unlisted
		e.giveUp(t.Context(), []*watch{wt})
		if all := logs.All(); len(all) != 1 || all[0].Level != level {
			t.Errorf("a subscription that its topic does not list = %v: %v is logged, want one line of level %v", unlisted, all, level)
		}
		if open := e.w.intake.Watching(); open != 1 {
			t.Errorf("%d watches are open, want that this one is done", open)
		}
	}
}
