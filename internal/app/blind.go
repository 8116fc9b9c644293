// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/history"
	"overdue/internal/monitorqueue"
	"overdue/internal/servicebus/address"
	"overdue/monitor"
	"overdue/monitor/metrics"
	"overdue/scheduler"
)

const (
	lookInterval = time.Second
	lookTimeout  = 3 * time.Second // of one check
	// frozenAfter is how far apart two checks are of a process that did not run. It is longer than
	// lookInterval and lookTimeout together, on a machine that is busy.
	frozenAfter = 10 * time.Second
	// minBlind is for how long a monitor that harmed no deadline must have been blind to speak of it.
	minBlind = 30 * time.Second
	// lateAfter is how late a miss is found that counts as late: far beyond the lag of a monitor that
	// sees.
	lateAfter = 5 * time.Second
	// A blind time is reported once nothing has become known of its deadlines for settleTime, or after
	// maxSettleTime.
	settleTime    = 15 * time.Second
	maxSettleTime = 5 * time.Minute
	// maxBlindNames bounds the entities of a blind time: writers to the monitor queue choose names.
	maxBlindNames = 1000
)

// Reasons why a monitor is blind, besides those of readiness.
const (
	reasonNotRunning = "the monitor was not running"
	reasonFrozen     = "the process was frozen"
	reasonStarting   = "the monitor was starting"
)

// blindReasons are those of readiness for people, about the past.
var blindReasons = map[adminport.Reason]string{
	adminport.NamespaceDown:       "the namespace did not answer",
	adminport.KeyRefused:          "the namespace refused the key or the identity",
	adminport.MonitorQueueMissing: "the monitor queue did not exist",
	adminport.CompanionStore:      "the Redis that keeps the companions did not answer",
}

// reasonNotReceived is any other.
const reasonNotReceived = "the monitor queue could not be received from"

// maxReasons bounds the reasons of one blind time.
const maxReasons = 3

// A sight knows whether this monitor sees deadlines. Once it sees again, it says of the time in
// which it did not what became of the deadlines of that time.
//
//	seeing ─ cannot receive, was frozen ─▶ blind ─ receives ─▶ settling ─ dealt with ─▶ seeing
//	           the process starts ─────────▶   ▲ ── blind again ──┘
type sight struct {
	log       *zap.Logger
	place     string // host and port of this process
	namespace string
	upstream  *upstream
	scheduler *scheduler.Scheduler
	queues    monitorqueue.Queues
	inRedis   bool // the monitor queues have no companions
	history   *history.History
	labels    func(name string) map[string]string
	fleet     *blindFleet // nil without Redis
	groups    alert.Sight

	worker *monitor.Worker // set before run

	mu     sync.Mutex
	looked time.Time  // the last look
	span   *blindSpan // nil: seeing
}

// A blindSpan is a time without sight, by the clock of this machine.
type blindSpan struct {
	from    time.Time
	to      time.Time // zero: blind
	reasons []string  // in the order in which they came up
	queues  map[string]bool
	all     bool // of all monitor queues

	counts  map[string]alert.BlindCounts
	touched time.Time // when something became known of a deadline of the span
}

// newSight makes the sight of a process that starts. It is blind until it receives companions.
func newSight(e *environment, c *companions, namespace string, labels func(name string) map[string]string) *sight {
	place := e.self.Place()
	s := &sight{
		log:       e.log.Named("monitor"),
		place:     place[max(0, len(place)-120):], // a message-id has 128 characters
		namespace: namespace,
		upstream:  c.upstream,
		scheduler: c.scheduler,
		queues:    e.cfg.AllMonitorQueues(),
		inRedis:   c.store != nil,
		history:   e.admin.History,
		labels:    labels,
		looked:    time.Now(),
	}
	from, reason := s.looked, reasonStarting
	if seen := s.history.LastSeen(); !seen.IsZero() && seen.Before(from) {
		from, reason = seen, reasonNotRunning
	}
	s.loseLocked(from, reason, nil) // nobody else has s yet
	e.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "overdue_blind",
		Help:        "1 while this monitor receives no companions, or has yet to deal with the deadlines of the time in which it received none; 0 otherwise.",
		ConstLabels: prometheus.Labels{namespaceLabel: namespaceOf(e.cfg)},
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return asNumber(s.span != nil)
	}))
	return s
}

// run looks until ctx ends.
func (s *sight) run(ctx context.Context) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		if b := s.look(time.Now()); b != nil {
			s.report(looking, *b)
		}
		cancel()
	}
}

// look notices that sight is lost or regained. It returns a blind time that is over and is to be
// reported.
func (s *sight) look(now time.Time) *alert.Blind {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noticeFreezeLocked(now)
	switch reason, queues := s.obstacle(); {
	case reason != "":
		from := now
		if queues == nil { // it was noticed late
			from = s.upstream.lastProof()
		}
		s.loseLocked(from, reason, queues)
	case s.span == nil:
		s.history.Saw(now)
	case s.span.to.IsZero():
		s.span.to, s.span.touched = now, now
	case now.Sub(s.span.touched) >= settleTime || now.Sub(s.span.to) >= maxSettleTime:
		return s.blindLocked(now)
	}
	return nil
}

// obstacle is why nothing is received from monitor queues; "" = it is. nil stands for all of them.
func (s *sight) obstacle() (reason string, queues []string) {
	why := adminport.ReasonOf(s.upstream.attached(context.Background()))
	missing := s.worker.Unattached()
	switch {
	case why == adminport.NamespaceDown:
		return blindReasons[why], nil
	case len(missing) == 0:
		return "", nil // a queue that is full, for example, is received from
	case why == adminport.Starting:
		return reasonStarting, missing
	case s.inRedis:
		return blindReasons[adminport.CompanionStore], s.queues.Names()
	}
	if reason := blindReasons[why]; reason != "" {
		return reason, missing
	}
	return reasonNotReceived, missing
}

// noticeFreezeLocked notices that this process did not run since the last check. Verdicts that
// come now count for the time in which it did not.
func (s *sight) noticeFreezeLocked(now time.Time) {
	if now.Sub(s.looked) >= frozenAfter { // on the monotonic clock
		s.loseLocked(s.looked, reasonFrozen, nil)
	}
	s.looked = now
}

// loseLocked notes that nothing is received from queues since an instant; nil queues are all of
// them. A blind time goes on if it is not reported yet.
func (s *sight) loseLocked(from time.Time, reason string, queues []string) {
	s.groups.Lose()
	if s.span == nil {
		s.span = &blindSpan{from: from, queues: map[string]bool{}, counts: map[string]alert.BlindCounts{}}
	}
	b := s.span
	b.to = time.Time{}
	b.addReason(reason)
	b.all = b.all || queues == nil
	for _, name := range queues {
		b.queues[name] = true
	}
}

// addReason adds a reason unless it is known. One that only says that nothing is received gives way
// to any other.
func (b *blindSpan) addReason(reason string) {
	isVague := func(r string) bool { return r == reasonStarting || r == reasonNotReceived }
	last := len(b.reasons) - 1
	switch {
	case last < 0:
		b.reasons = []string{reason}
	case isVague(reason) || slices.Contains(b.reasons, reason):
	case isVague(b.reasons[last]):
		b.reasons[last] = reason
	case last < maxReasons-1:
		b.reasons = append(b.reasons, reason)
	}
}

// isOwn reports whether all reasons are of this process: another monitor may have seen everything.
func (b *blindSpan) isOwn() bool {
	return !slices.ContainsFunc(b.reasons, func(r string) bool { return r != reasonStarting && r != reasonNotRunning && r != reasonFrozen })
}

// judged counts a deadline if it fell into the blind time. It is a [metrics.Judged].
func (s *sight) judged(entity, verdict string, deadline time.Time, lag time.Duration) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.looked) >= frozenAfter {
		s.noticeFreezeLocked(now)
	}
	b := s.span
	if b == nil || !b.all && !b.queues[s.queues.For(entity)] {
		return
	}
	// Ages do not depend on the clocks' difference, nor on a step of ours.
	age := s.scheduler.Now().Time.Sub(deadline)
	if age > now.Sub(b.from) || !b.to.IsZero() && age < now.Sub(b.to) {
		return
	}
	b.touched = now
	switch verdict {
	case "": // still to come
	case metrics.Unknown:
		b.add(entity, alert.BlindCounts{Deadlines: 1, Unknown: 1})
	case metrics.Missed, metrics.Incomplete:
		c := alert.BlindCounts{Deadlines: 1}
		if lag > lateAfter {
			c.Late = 1
		}
		b.add(entity, c)
	default:
		b.add(entity, alert.BlindCounts{Deadlines: 1})
	}
}

// lost counts messages whose companions were on a monitor queue that was deleted, but for those that
// have new ones. It is the Lost of a [monitor.Config].
func (s *sight) lost(entity string, n int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= 0 {
		s.span.found(entity, -n)
		return
	}
	if s.span == nil { // the queue was missing between two checks
		s.loseLocked(s.looked, reasonNotReceived, s.queues.Names())
		s.span.to, s.span.touched = now, now
	}
	s.span.addReason(blindReasons[adminport.MonitorQueueMissing])
	s.span.add(entity, alert.BlindCounts{Lost: n})
}

// found takes messages of an entity, or of a subscription of it, off those that are lost.
func (b *blindSpan) found(entity string, n int) {
	if b == nil {
		return
	}
	c, known := b.counts[entity]
	if !known {
		entity, _ = address.SplitSubscription(entity)
		c, known = b.counts[entity]
	}
	if known {
		c.Lost = max(c.Lost-n, 0)
		b.counts[entity] = c
	}
}

// add adds to the counts of an entity, or of all others where there are too many.
func (b *blindSpan) add(entity string, more alert.BlindCounts) {
	c, known := b.counts[entity]
	if !known && len(b.counts) >= maxBlindNames {
		entity = "others"
		c = b.counts[entity]
	}
	c.Add(more)
	b.counts[entity] = c
}

// blindLocked returns the blind time as it is to be reported, by the clock of the broker. nil: it is
// not worth a word, and is over.
func (s *sight) blindLocked(now time.Time) *alert.Blind {
	span := s.span
	broker := s.scheduler.Now().Time
	b := &alert.Blind{
		From:   broker.Add(span.from.Sub(now)).UTC().Truncate(time.Millisecond),
		To:     broker.Add(span.to.Sub(now)).UTC().Truncate(time.Millisecond),
		Reason: strings.Join(span.reasons, ", then "),
		SoFar:  now.Sub(span.touched) < settleTime,
	}
	maps.DeleteFunc(span.counts, func(_ string, c alert.BlindCounts) bool { return c == alert.BlindCounts{} }) // nothing is lost after all
	b.SetEntities(span.counts, func(entity string) map[string]string {
		name, _ := address.SplitSubscription(entity)
		return s.labels(name)
	})
	isLong := b.To.Sub(b.From) >= minBlind
	if b.IsHarmful() || isLong && (!span.isOwn() || b.Deadlines > 0) {
		return b
	}
	if isLong {
		s.log.Info("no deadline was seen for a while, and none came due", zap.Time("from", b.From), zap.Time("to", b.To), zap.String("reason", b.Reason))
	}
	s.regainLocked(now)
	return nil
}

func (s *sight) regainLocked(now time.Time) {
	s.span = nil
	s.groups.Regain(s.scheduler.Now().Time)
	s.history.Saw(now)
}

// report notifies of a blind time. If that fails, the next check tries again, or finds that sight is
// lost again.
func (s *sight) report(ctx context.Context, b alert.Blind) {
	e := alert.NewBlind(s.namespace, s.place, b)
	isOurs, err := true, error(nil)
	if s.fleet != nil {
		e, isOurs, err = s.fleet.join(ctx, e)
	}
	if isOurs && err == nil {
		err = s.worker.NotifyBlind(ctx, e)
	}
	switch {
	case errors.Is(err, errNotYet):
		return
	case err != nil:
		s.log.Warn("blind time not reported yet, trying again", zap.Error(err))
		return
	}
	if s.fleet != nil && isOurs {
		s.fleet.end(ctx)
	}
	isSameTime := func(other *alert.Event) bool {
		return other.Blind != nil && other.Blind.From.Before(e.Blind.To) && e.Blind.From.Before(other.Blind.To)
	}
	if len(s.history.Find(isSameTime, 1)) == 0 { // another monitor notifies of it
		s.history.Note(&e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.span != nil && !s.span.to.IsZero() { // otherwise sight was lost again
		s.regainLocked(time.Now())
	}
}
