// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"time"

	"overdue/internal/servicebus/entities"
	"overdue/monitor/search"

	"go.uber.org/zap"
)

// forget drops what is known of e, which was deleted or recreated. It keeps the links of the
// views: those of a deleted entity end by themselves.
func (e *entity) forget(why string) {
	if len(e.work.Index)+len(e.dead.Index) > 0 || !e.ranges.Empty() {
		e.log.Info("entity was recreated or deleted: cached state dropped", zap.String("noticed_by", why))
	}
	e.kept.Clear()
	e.nudger.Forget()
	e.proven.Store(nil)
	e.seen.Clear()
	e.ranges.Reset()
	e.adoptedDuplicates, e.refuted = nil, nil
	for _, v := range []*search.View{&e.work, &e.dead} {
		v.Forget()
	}
	e.w.states.update(e.key, func(f *entityState) { *f = entityState{created: f.created, warned: f.warned, missing: f.missing} })
	e.settingsAsOf = time.Now()
}

// noteCreation records when e was created.
func (e *entity) noteCreation(info *entities.Info, subscription *entities.Subscription) {
	at := info.CreatedAt
	if subscription != nil {
		at = subscription.CreatedAt
	}
	before := e.w.states.get(e.key).created
	if at.IsZero() || at.Equal(before) {
		return
	}
	e.w.states.update(e.key, func(f *entityState) { f.created = at })
	if !before.IsZero() {
		e.forget("its creation time")
	}
}
