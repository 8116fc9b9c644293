// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// everyKind is properties with a value of each kind that a client can give one.
var everyKind = amqp.Map{
	{Key: "DeadLetterReason", Value: int64(1)},
	{Key: "symbol", Value: amqp.Symbol("s")},
	{Key: "span", Value: amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: int64(1)}},
	{Key: "list", Value: amqp.List{"a", amqp.Map{{Key: "b", Value: []byte("c")}}}},
	{Key: "array", Value: amqp.Array{int32(1)}},
	{Key: "null"},
}

var everyProperty = func() (ps []queue.Property) {
	for _, p := range everyKind {
		ps = append(ps, queue.Property{Key: p.Key.(string), Value: p.Value})
	}
	return ps
}()

func TestOutcomesMeanWhatTheSDKsMean(t *testing.T) {
	set := amqp.Map{{Key: amqp.Symbol("k"), Value: "v"}}
	properties := []queue.Property{{Key: "k", Value: "v"}}
	tests := []struct {
		name   string
		state  amqp.DeliveryState
		want   queue.Settlement
		answer amqp.DeliveryState
	}{
		{"complete", amqp.Accepted{}, queue.Settlement{Outcome: queue.Complete}, amqp.Accepted{}},
		{"release", amqp.Released{}, queue.Settlement{Outcome: queue.Release}, amqp.Released{}},
		{"no outcome", nil, queue.Settlement{Outcome: queue.Release}, amqp.Released{}},
		{"abandon", &amqp.Modified{MessageAnnotations: set}, queue.Settlement{Outcome: queue.Abandon, Properties: properties}, &amqp.Modified{}},
		{"abandon, delivery failed", &amqp.Modified{DeliveryFailed: true}, queue.Settlement{Outcome: queue.Abandon}, &amqp.Modified{DeliveryFailed: true}},
		{"defer", &amqp.Modified{UndeliverableHere: true, MessageAnnotations: set},
			queue.Settlement{Outcome: queue.Defer, Properties: properties}, &amqp.Modified{UndeliverableHere: true}},
		{"reject", &amqp.Rejected{}, queue.Settlement{Outcome: queue.DeadLetter}, &amqp.Rejected{}},
		{"dead-letter, string keys", &amqp.Rejected{Error: &amqp.Error{Condition: condDeadLetter, Info: amqp.Map{
			{Key: "DeadLetterReason", Value: "R"}, {Key: "DeadLetterErrorDescription", Value: "D"}, set[0],
		}}}, queue.Settlement{Outcome: queue.DeadLetter, DeadLetterReason: "R", DeadLetterErrorDescription: "D", Properties: properties}, &amqp.Rejected{}},
		{"dead-letter, symbol keys", &amqp.Rejected{Error: &amqp.Error{Condition: condDeadLetter, Info: amqp.Map{
			{Key: amqp.Symbol("DeadLetterReason"), Value: "R"},
		}}}, queue.Settlement{Outcome: queue.DeadLetter, DeadLetterReason: "R"}, &amqp.Rejected{}},
		{"reject for a reason of another client", &amqp.Rejected{Error: &amqp.Error{Condition: "x:bad", Description: "It is bad."}},
			queue.Settlement{Outcome: queue.DeadLetter, DeadLetterReason: "x:bad", DeadLetterErrorDescription: "It is bad."}, &amqp.Rejected{}},
		{"dead-letter, a reason that is no text", &amqp.Rejected{Error: &amqp.Error{Condition: "x:bad", Info: amqp.Map{
			{Key: "DeadLetterReason", Value: int64(1)}, {Key: "DeadLetterErrorDescription", Value: nil},
		}}}, queue.Settlement{Outcome: queue.DeadLetter, Properties: []queue.Property{
			{Key: "DeadLetterReason", Value: int64(1)}, {Key: "DeadLetterErrorDescription"},
		}}, &amqp.Rejected{}},
		{"abandon, a value of each kind", &amqp.Modified{MessageAnnotations: everyKind}, queue.Settlement{Outcome: queue.Abandon, Properties: everyProperty}, &amqp.Modified{}},
		{"defer, a value of each kind", &amqp.Modified{UndeliverableHere: true, MessageAnnotations: everyKind},
			queue.Settlement{Outcome: queue.Defer, Properties: everyProperty}, &amqp.Modified{UndeliverableHere: true}},
		{"not an outcome", &amqp.Received{}, queue.Settlement{}, nil},
	}
	for _, tc := range tests {
		got, answer, refusal := settlementOf(tc.state)
		if refusal != nil {
			t.Errorf("%s: refused with %v", tc.name, refusal)
		}
		if diff := cmp.Diff(tc.want, got, ignoreEmpty); answer != nil && diff != "" {
			t.Errorf("%s: settlement (-want +got):\n%s", tc.name, diff)
		}
		if diff := cmp.Diff(tc.answer, answer); diff != "" {
			t.Errorf("%s: answer (-want +got):\n%s", tc.name, diff)
		}
	}
}

// ignoreEmpty treats no properties and none alike.
var ignoreEmpty = cmp.FilterValues(func(a, b []queue.Property) bool { return len(a)+len(b) == 0 }, cmp.Ignore())

func TestOutcomesThatCannotBeAreRefused(t *testing.T) {
	for name, st := range map[string]amqp.DeliveryState{
		"property without a name": &amqp.Modified{MessageAnnotations: amqp.Map{{Key: int64(1), Value: "v"}}},
	} {
		if _, _, refusal := settlementOf(st); refusal == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestDeliveriesThatFaredAlikeAreAnsweredTogether(t *testing.T) {
	lost := queue.ErrLockLost
	for _, tc := range []struct {
		errs []error
		want []int
	}{
		{nil, []int{5}},
		{[]error{nil, nil, lost, lost, nil}, []int{2, 2, 1}},
		{[]error{lost, lost, lost, lost, lost}, []int{5}},
		{[]error{lost, queue.ErrDeadLetterQueue, nil, nil, lost}, []int{1, 1, 2, 1}},
	} {
		var got []int
		for n, errs := 5, tc.errs; n > 0; {
			k := run(errs, n)
			got = append(got, k)
			if n -= k; errs != nil {
				errs = errs[k:]
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("runs of %v (-want +got):\n%s", tc.errs, diff)
		}
	}
}
