// SPDX-License-Identifier: Apache-2.0

// Package traces records spans of sends and of missed deadlines, and exports them with OTLP, over
// HTTP or gRPC, as the variables of OpenTelemetry say.
//
//	Begin ─▶ Send ─ End ─┐
//	                     ├─▶ queue ─▶ batch ─▶ receiver
//	         Missed ─────┘     └─ full: dropped
//
// A send never waits for any of this: it appends to a queue, and Run does the rest. It writes the
// wire form itself. docs/decisions/0052 says what that saves.
package traces

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Values of the label result.
const (
	resultExported = "exported" // the receiver has taken it
	resultFailed   = "failed"   // the receiver refused it, or could not be reached
	resultDropped  = "dropped"  // too many were waiting
)

const (
	// lastTime bounds the export of what is left at the stop.
	lastTime = 3 * time.Second
	// silence is how long a receiver that stays away is not logged again.
	silence = 10 * time.Minute
)

// Options are what a Tracer needs besides its Config.
type Options struct {
	Namespace    string                     // host or host:port
	MonitorQueue func(entity string) string // that has the companions of an entity
	Version      string                     // of this program
	Log          *zap.Logger                // nil: none
	Registerer   prometheus.Registerer      // nil: none
}

// A Tracer records spans. Those of sends and of missed deadlines begin with Begin and Missed; Run
// exports them. A nil Tracer records none.
type Tracer struct {
	cfg      Config
	o        Options
	host     string
	port     int64
	post     func(ctx context.Context, body []byte) error
	receiver string // for the log
	head     []byte // the resource, encoded
	toProxy  []byte // attributes of all sends, encoded
	upstream []byte // those and where the namespace is
	counts   *prometheus.CounterVec

	mu      sync.Mutex
	queue   []record
	waiting int           // spans in queue
	lost    int           // spans that were dropped since the last look of Run
	wake    chan struct{} // a token: the queue is no longer empty, or has a batch

	// Of Run alone:
	body    []byte
	away    bool      // the last export failed
	logged  time.Time // when that was logged last
	missing int       // spans that were not exported since
}

// A record becomes spans when it is exported.
type record interface {
	spans() int
	append(b []byte, t *Tracer) []byte
}

// New makes a Tracer, nil when traces are off. It reads the files that the Config names, and connects
// to nobody.
func New(cfg Config, o Options) (*Tracer, error) {
	if !cfg.On() {
		return nil, nil
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("traces: the address of the receiver cannot be read")
	}
	post, err := newPoster(cfg, o.Version)
	if err != nil {
		return nil, err
	}
	t := &Tracer{
		cfg: cfg, o: o, post: post, receiver: u.Scheme + "://" + u.Host, wake: make(chan struct{}, 1),
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_spans_total", Help: "Spans of traces, by result: exported, failed (the receiver refused them or was away), dropped (too many were waiting).",
		}, []string{"result"}),
	}
	t.host, t.port = splitAddress(o.Namespace)
	t.head = t.appendHead(nil)
	ofSend := []Attribute{Text("messaging.system", system), Text("messaging.operation.name", operation), Text("messaging.operation.type", operation)}
	t.toProxy, t.upstream = encode(ofSend...), encode(t.appendServer(ofSend)...)
	for _, result := range []string{resultExported, resultFailed, resultDropped} {
		t.counts.WithLabelValues(result)
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(t.counts); err != nil {
			return nil, fmt.Errorf("traces: register metrics: %w", err)
		}
	}
	return t, nil
}

// Receiver is where the spans go, for the log.
func (t *Tracer) Receiver() string { return t.receiver }

// add queues a record. It does not block: a full queue drops it.
func (t *Tracer) add(r record) {
	n := r.spans()
	t.mu.Lock()
	before := t.waiting
	if before+n > t.cfg.Queue {
		t.lost += n
		t.mu.Unlock()
		t.counts.WithLabelValues(resultDropped).Add(float64(n))
		return
	}
	t.queue = append(t.queue, r)
	t.waiting += n
	t.mu.Unlock()
	if before == 0 || before < t.cfg.BatchSize && before+n >= t.cfg.BatchSize {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// take takes a batch from the queue, and returns how many spans are left.
func (t *Tracer) take() (batch []record, n, left, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := 0
	for i < len(t.queue) && (i == 0 || n+t.queue[i].spans() <= t.cfg.BatchSize) {
		n += t.queue[i].spans()
		i++
	}
	if batch = t.queue[:i]; i == len(t.queue) {
		t.queue = nil
	} else {
		t.queue = t.queue[i:]
	}
	t.waiting -= n
	lost, t.lost = t.lost, 0
	return batch, n, t.waiting, lost
}

func (t *Tracer) pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// Run exports spans until ctx ends, and then what is left.
func (t *Tracer) Run(ctx context.Context) error {
	due := time.NewTimer(t.cfg.Delay)
	due.Stop()
	armed := false
	for {
		select {
		case <-t.wake:
			if t.pending() < t.cfg.BatchSize {
				if !armed {
					due.Reset(t.cfg.Delay)
					armed = true
				}
				continue
			}
		case <-due.C:
		case <-ctx.Done():
			due.Stop()
			t.flush(context.WithoutCancel(ctx))
			return nil
		}
		for left := t.cfg.BatchSize; left >= t.cfg.BatchSize && ctx.Err() == nil; {
			left = t.export(ctx, t.cfg.BatchTime)
		}
		if armed = t.pending() > 0; armed {
			due.Reset(t.cfg.Delay)
		} else {
			due.Stop()
		}
	}
}

// flush exports what is left, as far as lastTime allows.
func (t *Tracer) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastTime)
	defer cancel()
	for t.pending() > 0 && ctx.Err() == nil {
		t.export(ctx, lastTime)
	}
}

// export sends one batch, with retries, and returns how many spans are left. Errors stop here: the
// first one is logged, and that the receiver is back.
func (t *Tracer) export(ctx context.Context, within time.Duration) (left int) {
	batch, n, left, lost := t.take()
	t.missing += lost
	if n == 0 {
		return left
	}
	b, outer := open(t.body[:0], 1)
	b = append(b, t.head...)
	b, scoped := open(b, 2)
	b = append(b, t.appendScope()...)
	for _, r := range batch {
		b = r.append(b, t)
	}
	clear(batch) // what has been sent must not stay in memory
	b = appendText(end(b, scoped), 3, schemaURL)
	b = end(b, outer)
	t.body = b[:0]
	if cap(b) > 1<<20 {
		t.body = nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, t.post(ctx, b) }, backoff.WithMaxElapsedTime(within))
	refused := (*partialError)(nil)
	failed := n
	switch {
	case err == nil:
		failed = 0
	case errors.As(err, &refused):
		failed = int(min(refused.rejected, int64(n)))
	}
	t.counts.WithLabelValues(resultExported).Add(float64(n - failed))
	t.counts.WithLabelValues(resultFailed).Add(float64(failed))
	t.missing += failed
	t.logResult(err)
	return left
}

// logResult logs the first failure, then one each silence, and the end of the failures.
func (t *Tracer) logResult(err error) {
	where, missing := zap.String("receiver", t.receiver), zap.Int("spans_lost", t.missing)
	now := time.Now()
	switch {
	case err != nil && (!t.away || now.Sub(t.logged) >= silence):
		t.o.Log.Warn("traces not exported", where, missing, zap.Error(err), zap.String("next", "check the receiver and OTEL_EXPORTER_OTLP_*; sends and alerts go on"))
	case err == nil && t.away:
		t.o.Log.Info("traces exported again", where, missing)
	case err == nil && t.missing > 0 && now.Sub(t.logged) >= silence:
		t.o.Log.Warn("spans dropped: more than the receiver takes", where, missing, zap.String("next", "sample fewer with OTEL_TRACES_SAMPLER, or raise OTEL_BSP_MAX_QUEUE_SIZE"))
	default:
		return
	}
	t.away, t.logged, t.missing = err != nil, now, 0
}

// appendHead appends the Resource.
func (t *Tracer) appendHead(b []byte) []byte {
	attributes := []Attribute{
		Text("service.name", t.cfg.Service), Text("telemetry.sdk.name", "overdue"), Text("telemetry.sdk.language", "go"), Text("telemetry.sdk.version", t.o.Version),
	}
	stated := map[string]bool{}
	for _, a := range t.cfg.Resource {
		stated[a.Key] = true
	}
	if !stated["service.version"] {
		attributes = append(attributes, Text("service.version", t.o.Version))
	}
	if host, err := os.Hostname(); err == nil && !stated["host.name"] { // an attribute less is no failure
		attributes = append(attributes, Text("host.name", host))
	}
	b, start := open(b, 1)
	for _, a := range append(attributes, t.cfg.Resource...) {
		b = a.append(b, 1)
	}
	return end(b, start)
}

// appendScope returns the InstrumentationScope.
func (t *Tracer) appendScope() []byte {
	b, start := open(nil, 1)
	b = appendText(b, 1, "overdue")
	b = appendText(b, 2, t.o.Version)
	return end(b, start)
}

// schemaURL names the conventions that the attributes follow.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"
