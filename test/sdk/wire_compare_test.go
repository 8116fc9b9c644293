// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/testing/wiretap"
)

// compareDeliveries wants two taps to have the same, to the byte.
func compareDeliveries(t *testing.T, what string, a, b []wiretap.Delivery) {
	t.Helper()
	if len(a) == 0 {
		t.Errorf("%s: nothing was there", what)
	}
	if diff := wiretap.Difference(a, b); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// compareAdditions wants behind the endpoint what was before it, and to each message an id and a time
// to live. No other byte of it may have changed.
func compareAdditions(t *testing.T, queue string, front, behind []wiretap.Delivery) {
	t.Helper()
	if len(front) != len(behind) {
		t.Errorf("%s: %d deliveries before the endpoint, %d behind it", queue, len(front), len(behind))
		return
	}
	var ids []any
	for i := range front {
		before, after := messagesOf(t, front[i]), messagesOf(t, behind[i])
		if len(before) != len(after) {
			t.Errorf("%s, delivery %d: %d messages before the endpoint, %d behind it", queue, i, len(before), len(after))
			continue
		}
		for j := range before {
			what := fmt.Sprintf("%s, delivery %d, message %d", queue, i, j)
			id := compareAddition(t, what, before[j], after[j])
			if slices.Contains(ids, id) {
				t.Errorf("%s: its id %v has come before", what, id)
			}
			ids = append(ids, id)
		}
		if diff := gocmp.Diff(around(t, front[i]), around(t, behind[i])); diff != "" {
			t.Errorf("%s, delivery %d, around the messages (-before +behind):\n%s", queue, i, diff)
		}
		f, b := front[i], behind[i]
		f.Payload, b.Payload = nil, nil
		if diff := wiretap.Difference([]wiretap.Delivery{f}, []wiretap.Delivery{b}); diff != "" {
			t.Errorf("%s, apart from the messages: %s", queue, diff)
		}
	}
}

// compareAddition compares one message, and returns the id that it has got.
func compareAddition(t *testing.T, what string, before, after amqp.Message) (id any) {
	t.Helper()
	b, a := headerOf(t, before), headerOf(t, after)
	if b.HasTTL || !a.HasTTL || a.TTL != 3_600_000 {
		t.Errorf("%s: time to live %d ms (%v) before the endpoint, %d ms behind it, want none and the deadline's hour", what, b.TTL, b.HasTTL, a.TTL)
	}
	a.TTL, a.HasTTL = 0, false
	if diff := gocmp.Diff(b, a); diff != "" {
		t.Errorf("%s: header (-before +behind):\n%s", what, diff)
	}
	pb, pa := propertiesOf(t, before), propertiesOf(t, after)
	if id = pa.MessageID; id == nil {
		t.Errorf("%s: it has no id behind the endpoint", what)
	}
	if pb.MessageID == nil { // the Go SDK gives ids to the messages of a batch
		pa.MessageID = nil
	}
	if diff := gocmp.Diff(pb, pa); diff != "" {
		t.Errorf("%s: properties (-before +behind):\n%s", what, diff)
	}
	// The rest as it is, to the byte.
	before.Header, before.Properties, after.Header, after.Properties = nil, nil, nil, nil
	if diff := gocmp.Diff(before, after); diff != "" {
		t.Errorf("%s: other sections (-before +behind):\n%s", what, diff)
	}
	return id
}

// messagesOf is what a delivery carries: one message, or those of a batch.
func messagesOf(t *testing.T, d wiretap.Delivery) (all []amqp.Message) {
	t.Helper()
	parse := func(b []byte) amqp.Message {
		m, err := amqp.ParseMessage(b)
		if err != nil {
			t.Fatalf("a message to %s: %v", d.Address, err)
		}
		return m
	}
	m := parse(d.Payload)
	if d.Format != amqp.BatchMessageFormat {
		return []amqp.Message{m}
	}
	for inner, err := range amqp.DataSections(m.Body) {
		if err != nil {
			t.Fatalf("a batch to %s: %v", d.Address, err)
		}
		all = append(all, parse(inner))
	}
	return all
}

// around are the sections of a batch that are not in its messages.
func around(t *testing.T, d wiretap.Delivery) amqp.Message {
	t.Helper()
	if d.Format != amqp.BatchMessageFormat {
		return amqp.Message{}
	}
	m, err := amqp.ParseMessage(d.Payload)
	if err != nil {
		t.Fatalf("a batch to %s: %v", d.Address, err)
	}
	m.Body = nil
	return m
}

func headerOf(t *testing.T, m amqp.Message) amqp.Header {
	t.Helper()
	h, err := amqp.DecodeHeader(m.Header)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func propertiesOf(t *testing.T, m amqp.Message) amqp.Properties {
	t.Helper()
	p, err := amqp.DecodeProperties(m.Properties)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A maker makes parts of a message again each time.
type maker int

const (
	bySDK    maker = 1 << iota // times that follow from the time to live
	byBroker                   // stamps, the token of a lock
	ids                        // SDK, broker or proxy: an id where there was none, and maybe a time to live
)

// stamps are annotations that the broker sets for each message and delivery.
var stamps = []string{"x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-enqueue-sequence-number", "x-opt-locked-until"}

// compareMessages wants the same messages, except the parts that are made each time.
func compareMessages(t *testing.T, what string, a, b []wiretap.Delivery, made maker) {
	t.Helper()
	if len(a) != len(b) || len(a) == 0 {
		t.Errorf("%s: %d and %d deliveries, want as many, and some", what, len(a), len(b))
		return
	}
	for i := range a {
		x, y := messagesOf(t, a[i]), messagesOf(t, b[i])
		if len(x) != len(y) {
			t.Errorf("%s: delivery %d has %d and %d messages", what, i, len(x), len(y))
			continue
		}
		for j := range x {
			px, py := timeless(t, &x[j], made), timeless(t, &y[j], made)
			if diff := gocmp.Diff(px, py); diff != "" {
				t.Errorf("%s: delivery %d, properties of message %d:\n%s", what, i, j, diff)
			}
			if diff := gocmp.Diff(x[j], y[j]); diff != "" {
				t.Errorf("%s: delivery %d, message %d:\n%s", what, i, j, diff)
			}
		}
	}
}

// unreleased are the deliveries that their receiver did not release, by sequence number. A receiver
// that gets more than it wants at the moment releases the rest, and gets these again, maybe behind
// later ones. How many they are depends on how busy the machine is.
func unreleased(t *testing.T, all []wiretap.Delivery) []wiretap.Delivery {
	t.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(d wiretap.Delivery) bool { return strings.HasPrefix(d.Outcome, "released") })
	slices.SortStableFunc(all, func(a, b wiretap.Delivery) int { return cmp.Compare(sequenceNumber(t, a), sequenceNumber(t, b)) })
	return all
}

func sequenceNumber(t *testing.T, d wiretap.Delivery) int64 {
	t.Helper()
	for _, m := range messagesOf(t, d) {
		r := amqp.NewReader(m.MessageAnnotations)
		all, _ := r.Value().(amqp.Map)
		for _, p := range all {
			if n, ok := p.Value.(int64); ok && p.Key == amqp.Symbol("x-opt-sequence-number") {
				return n
			}
		}
	}
	t.Fatalf("a delivery from %s has no sequence number", d.Address)
	return 0
}

// timeless removes the parts that are made each time, and the properties, which it returns.
func timeless(t *testing.T, m *amqp.Message, made maker) amqp.Properties {
	t.Helper()
	p := propertiesOf(t, *m)
	m.Properties = nil
	p.CreationTime, p.AbsoluteExpiryTime, p.HasCreationTime, p.HasAbsoluteExpiryTime = 0, 0, false, false
	if made&ids != 0 {
		p.MessageID = nil
	}
	if made&byBroker != 0 {
		m.DeliveryAnnotations = nil
		r := amqp.NewReader(m.MessageAnnotations)
		all, ok := r.Value().(amqp.Map)
		if r.Err() != nil || !ok {
			t.Fatalf("message annotations %x: %v", []byte(m.MessageAnnotations), r.Err())
		}
		kept, err := amqp.AppendValue(nil, slices.DeleteFunc(all, func(p amqp.Pair) bool {
			key, _ := p.Key.(amqp.Symbol)
			return slices.Contains(stamps, string(key))
		}))
		if err != nil {
			t.Fatal(err)
		}
		m.MessageAnnotations = kept
	}
	if made&(byBroker|ids) == byBroker|ids {
		m.Header = nil
	}
	return p
}
