// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"

	"overdue/internal/escape"
)

// Values of the label result.
const (
	resultExported = "exported" // the receiver has taken it
	resultFailed   = "failed"   // the receiver refused it, or could not be reached
	resultDropped  = "dropped"  // too many were waiting
)

// logInterval is how long a receiver that stays away is not logged again.
const logInterval = 10 * time.Minute

// A queue drops spans when too many wait for the batches of the SDK, which would drop them
// uncounted.
type queue struct {
	sdk.SpanProcessor
	delivery *delivery
	capacity int64
}

func newQueue(d *delivery) *queue {
	q := &queue{delivery: d}
	q.SpanProcessor = sdk.NewBatchSpanProcessor(d, func(o *sdk.BatchSpanProcessorOptions) { q.capacity = int64(o.MaxQueueSize) })
	return q
}

// OnEnd takes a span. It does not block.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	d := q.delivery
	if d.waiting.Add(1) > q.capacity {
		d.waiting.Add(-1)
		d.lost.Add(1)
		d.counts.WithLabelValues(resultDropped).Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// A delivery exports batches, counts what becomes of their spans, and logs it. Errors stop here.
type delivery struct {
	sdk.SpanExporter
	receiver *receiver
	log      *zap.Logger
	counts   *prometheus.CounterVec
	waiting  atomic.Int64 // spans that are recorded and in no batch yet
	lost     atomic.Int64 // spans that were dropped since the last batch
	stopped  context.Context
	abandon  context.CancelFunc // ends stopped, and with it all exports

	// Of ExportSpans alone, which the SDK calls once at a time:
	away    bool      // the last export failed
	logged  time.Time // when that was logged last
	missing int64     // spans that were not exported since
}

func newDelivery(r *receiver, exporter sdk.SpanExporter, log *zap.Logger) *delivery {
	stopped, abandon := context.WithCancel(context.Background())
	d := &delivery{
		stopped:      stopped,
		abandon:      abandon,
		SpanExporter: exporter,
		receiver:     r,
		log:          log,
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "overdue_spans_total",
			Help: "Spans of traces, by result: exported, failed (the receiver refused them or was away), dropped (too many were waiting).",
		}, []string{"result"}),
	}
	for _, result := range []string{resultExported, resultFailed, resultDropped} {
		d.counts.WithLabelValues(result)
	}
	return d
}

// ExportSpans exports a batch. The first error is logged, and that the receiver is back.
func (d *delivery) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	n := int64(len(spans))
	d.waiting.Add(-n)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.stopped, cancel)()
	err := d.SpanExporter.ExportSpans(ctx, spans)
	failed := n
	if err == nil {
		failed = 0
	} else if refused, ok := refusedSpans(err); ok {
		failed = min(refused, n)
	}
	if failed == 0 { // a text alone is advice
		err = nil
	}
	d.counts.WithLabelValues(resultExported).Add(float64(n - failed))
	d.counts.WithLabelValues(resultFailed).Add(float64(failed))
	d.missing += failed + d.lost.Swap(0)
	d.logResult(err)
	return nil
}

// partialSuccess matches the error of a batch of which the receiver has refused spans. Its type
// is internal to the exporters.
var partialSuccess = regexp.MustCompile(`OTLP partial success: (?s:.*)\((\d+) spans rejected\)$`)

// refusedSpans returns how many spans of a batch were refused. ok is false if all were.
func refusedSpans(err error) (refused int64, ok bool) {
	m := partialSuccess.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, false
	}
	refused, err = strconv.ParseInt(m[1], 10, 64)
	return refused, err == nil
}

// logResult logs the first failure, then one each logInterval, and the end of the failures.
func (d *delivery) logResult(err error) {
	where, missing := zap.Stringer("receiver", d.receiver), zap.Int64("spans_lost", d.missing)
	now := time.Now()
	quiet := now.Sub(d.logged) < logInterval
	switch {
	case err != nil && (!d.away || !quiet):
		d.log.Warn("traces not exported", where, missing, zap.String("error", d.quote(err)), zap.String("next", "check the receiver and OTEL_EXPORTER_OTLP_*; sends and alerts go on"))
	case err == nil && d.away:
		d.log.Info("traces exported again", where, missing)
	case err == nil && d.missing > 0 && !quiet:
		d.log.Warn("spans dropped: more than the receiver takes", where, missing, zap.String("next", "sample fewer with OTEL_TRACES_SAMPLER, or raise OTEL_BSP_MAX_QUEUE_SIZE"))
	default:
		return
	}
	d.away, d.logged, d.missing = err != nil, now, 0
}

// maxQuotedRunes bounds an error in the log, which may have an answer of the receiver in it.
const maxQuotedRunes = 400

// quote returns the text of an error for the log, without the path of the receiver, which may be a
// secret.
func (d *delivery) quote(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	text = strings.ReplaceAll(text, d.receiver.url.String(), d.receiver.String())
	runes := []rune(strings.Join(strings.Fields(text), " "))
	return escape.Text(string(runes[:min(len(runes), maxQuotedRunes)]))
}
