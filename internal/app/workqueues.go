// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

// workQueueInterval is how often a monitor looks whether the listed queues and topics are there, a
// little more or less often. It opens a link for requests, which is no receiver and no billed
// operation, and needs no right to manage.
const workQueueInterval = 30 * time.Second

// workQueues knows which of the listed queues and topics are missing.
type workQueues struct {
	*environment
	links *link.Namespace
	// describe says how an entity was made, as far as that is known.
	describe func(ctx context.Context, name string) (entities.Info, error)
	missing  atomic.Pointer[map[string]bool] // by name, of those that are listed
}

// watchWorkQueues looks for the listed queues and topics from now on. Where a queue exists as soon
// as it is named none is missing, and looking would make it.
func watchWorkQueues(e *environment, links *link.Namespace, describe func(context.Context, string) (entities.Info, error)) {
	if e.cfg.Embedded() && e.cfg.Broker.AutoCreate {
		return
	}
	w := &workQueues{
		environment: e,
		links:       links,
		describe:    describe,
	}
	w.missing.Store(&map[string]bool{})
	e.registry.MustRegister(&gaugeReader{
		desc: prometheus.NewDesc("overdue_entity_missing",
			"1 while a queue or topic of monitor.entities does not exist in the namespace, 0 otherwise.",
			[]string{"entity"}, prometheus.Labels{namespaceLabel: namespaceOf(e.cfg)}),
		read: w.show,
	})
	e.life.Background("work queues", w.run)
}

// show shows an entity that has not been looked for as one that is there.
func (w *workQueues) show(show func(value float64, labels ...string)) {
	missing := *w.missing.Load()
	for _, name := range w.names() {
		show(asNumber(missing[name]), name)
	}
}

// names are the queues and topics that the configuration in force lists.
func (w *workQueues) names() (names []string) {
	for _, e := range w.current().Monitor.Entities {
		names = append(names, e.Name())
	}
	return names
}

func (w *workQueues) run(ctx context.Context) error {
	for {
		missing := map[string]bool{}
		for _, name := range w.names() {
			missing[name] = w.isMissing(ctx, name)
		}
		if ctx.Err() != nil {
			return nil
		}
		w.missing.Store(&missing)
		select {
		case <-time.After(time.Duration(float64(workQueueInterval) * (0.9 + 0.2*rand.Float64()))):
		case <-ctx.Done():
			return nil
		}
	}
}

// isMissing asks the namespace. Any answer but yes or no says nothing new. An entity that deletes
// itself when it is idle is left alone: a link to it may count as use of it.
func (w *workQueues) isMissing(ctx context.Context, name string) bool {
	if info, err := w.describe(ctx, name); err == nil && info.AutoDeleteOnIdle > 0 {
		return false
	}
	p, err := w.links.Peeker(ctx, name)
	switch {
	case err == nil:
		p.Close(ctx)
		return false
	case link.Condition(err) == link.ConditionNotFound:
		return true
	}
	return (*w.missing.Load())[name]
}
