// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// ids gives the span of an event its id from there, and other spans random ids. A trace that begins
// with an event has its id from there as well.
type ids struct{}

// eventKey is the key of the id of an event in a context.
type eventKey struct{}

func withEvent(ctx context.Context, id trace.TraceID) context.Context {
	return context.WithValue(ctx, eventKey{}, id)
}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if event, ok := ctx.Value(eventKey{}).(trace.TraceID); ok {
		return event, trace.SpanID(event[:8])
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) // an id of zeros is none
	return id, newSpanID()
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if event, ok := ctx.Value(eventKey{}).(trace.TraceID); ok {
		return trace.SpanID(event[:8])
	}
	return newSpanID()
}

func newSpanID() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}
