// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"overdue/internal/broker"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/redisstore"
	"overdue/monitor/mute"
)

// maxListed bounds the lists of deadlines and spans on the overview.
const maxListed = 20

// outside is what has to be asked for or read from a file. It is read while somebody views the
// dashboard. Its parts are replaced, never changed.
type outside struct {
	at     time.Time // zero = never
	checks []Check

	fleet    *redisstore.Fleet // nil = not known
	fleetErr error
	mutes    []mute.Mute

	unknown   []history.Unknown
	elsewhere []history.Notification // missed deadlines that others saw

	depths map[string]Depth // by path in lower case
}

// known is what the dashboard has asked for and sampled by now.
type known struct {
	outside
	samples samples
}

// known returns copies: what they refer to is never changed.
func (d *Dashboard) known() *known {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &known{d.outside, d.samples}
}

// A Depth is how many messages a queue or subscription has.
type Depth struct {
	Messages, DeadLetters uint64
	More, MoreDeadLetters bool // than were counted
}

// ask asks for everything that is outside. It returns within checkTimeout.
func (d *Dashboard) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	d.mu.Lock()
	next := d.outside
	d.mu.Unlock()
	var all sync.WaitGroup
	all.Go(func() { next.checks = d.source.Checks(ctx) })
	if read := d.source.Fleet; read != nil {
		all.Go(func() {
			f, err := read(ctx)
			next.fleet, next.fleetErr = &f, err
			if err != nil {
				next.fleet = nil
			}
		})
	}
	if read := d.source.Mutes; read != nil {
		all.Go(func() {
			if mutes, err := read(ctx); err == nil { // else those that were known: a check names the cause
				next.mutes = mutes
			}
		})
	}
	if d.source.Monitor {
		all.Go(func() { next.unknown, _ = d.source.History.Unknown(ctx, maxListed) })
		all.Go(func() { next.elsewhere = d.source.History.Elsewhere(ctx) }) // the fleet says that Redis does not answer
	}
	if d.source.Namespace.Depths != nil {
		all.Go(func() { next.depths = d.readDepths(ctx) })
	}
	all.Wait()
	next.at = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outside = next
}

// readDepths counts the messages of what the configuration or the metrics name. One that cannot be
// counted is left out, and shown as not known.
func (d *Dashboard) readDepths(ctx context.Context) map[string]Depth {
	depths := map[string]Depth{}
	var mu sync.Mutex
	forEach(d.source.rootNames(ctx), func(_ int, name string) {
		found, err := d.source.Namespace.Depths(ctx, name)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for path, n := range found {
			depths[strings.ToLower(path)] = n
		}
	})
	return depths
}

// forEach calls do for all of them, eight at a time.
func forEach[T any](all []T, do func(i int, v T)) {
	var calls sync.WaitGroup
	turn := make(chan struct{}, 8)
	for i, v := range all {
		turn <- struct{}{}
		calls.Go(func() {
			defer func() { <-turn }()
			do(i, v)
		})
	}
	calls.Wait()
}

// brokerDepths are those of an embedded broker.
func brokerDepths(n *broker.Namespace) map[string]Depth {
	depths := map[string]Depth{}
	for _, e := range n.Entities() {
		if c := e.Queue().Counts(); e.Kind() != broker.KindTopic {
			depths[strings.ToLower(e.Path())] = Depth{Messages: uint64(c.Active + c.Deferred), DeadLetters: uint64(c.DeadLetter)}
		}
	}
	return depths
}

// rootNames are the queues and topics that the configuration or the metrics name.
func (s *Source) rootNames(ctx context.Context) []string {
	names := map[string]string{} // by their lower case
	add := func(name string) {
		if at, err := dlq.ParsePlace(name); err == nil && !strings.EqualFold(name, s.Canary) {
			names[strings.ToLower(at.Entity)] = at.Entity
		}
	}
	for _, name := range s.Namespace.Deadlines.Names(ctx) {
		add(name)
	}
	if r, err := read(s.Metrics); err == nil { // an error shows on the page
		for name := range r.entities {
			add(name)
		}
	}
	all := slices.Sorted(maps.Values(names))
	return all[:min(len(all), maxRows)]
}
