// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// absent is an entity that does not exist, with a watch of a companion that has another one.
func absent() (*entity, *watch, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.InfoLevel)
	w := &Worker{metrics: newMetrics(prometheus.NewRegistry(), nil, nil), room: make(chan struct{}, maxHeld)}
	h := &companion{w: w, until: time.Now().Add(maxHold), open: 2}
	return &entity{w: w, key: "orders", name: "orders", log: zap.New(core)}, &watch{companion: h}, logs
}

// A subscription that goes takes its messages along, which is nothing to warn of; a queue that
// goes is.
func TestADeletedSubscriptionIsNoWarning(t *testing.T) {
	for unlisted, level := range map[bool]zapcore.Level{true: zapcore.InfoLevel, false: zapcore.WarnLevel} {
		e, wt, logs := absent()
		e.settings.unlisted = unlisted
		e.giveUp(t.Context(), []*watch{wt})
		if all := logs.All(); len(all) != 1 || all[0].Level != level {
			t.Errorf("a subscription that its topic does not list = %v: %v is logged, want one line of level %v", unlisted, all, level)
		}
		if wt.companion.open != 1 || len(wt.companion.rewritten) != 0 {
			t.Errorf("%d watches are open, and %v is rewritten, want that this one is done", wt.companion.open, wt.companion.rewritten)
		}
	}
}

// What waits for an entity takes no room while others need it.
func TestWatchesOfAMissingEntityMakeRoom(t *testing.T) {
	e, wt, _ := absent()
	e.awaitEntity(t.Context(), wt)
	if len(e.watches) != 1 || len(wt.companion.rewritten) != 0 {
		t.Errorf("%d watches, %v rewritten, want one watch", len(e.watches), wt.companion.rewritten)
	}
	e, wt, _ = absent()
	for range maxHeld/2 + creditWindow + 1 {
		e.w.room <- struct{}{}
	}
	e.awaitEntity(t.Context(), wt)
	if len(e.watches) != 0 || len(wt.companion.rewritten) != 1 {
		t.Errorf("%d watches, %v rewritten, want it rewritten", len(e.watches), wt.companion.rewritten)
	}
}
