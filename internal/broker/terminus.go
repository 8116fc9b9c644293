// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// Features that AMQP lets a link ask for beyond an entity's messages. Microsoft's page on JMS over
// AMQP (service-bus-java-how-to-use-jms-api-amqp) lists message selectors, queue browsers and
// temporary queues as not supported on Standard. Premium has them for its own JMS library.
// Elsewhere the service says amqp:not-implemented, "Full JMS 2.0 parity over AMQP is a feature
// supported only by a Premium Messaging namespace" (azure-sdk-for-java issue 13644). With which
// words it refuses a single link was not found out. Here such a link is refused: without its
// selector, or as an ordinary receiver, it would take messages that are not for it.

// distributionMove is the distribution mode of a source whose messages go to one receiver each.
const distributionMove amqp.Symbol = "move"

// refuseSource says what a receiver asks of its source that is not in place. That it has an
// address, the table of rights has seen to.
func refuseSource(s *amqp.Source) *amqp.Error {
	if s.DistributionMode != "" && s.DistributionMode != distributionMove {
		return amqp.Errorf(amqp.ErrCondNotImplemented,
			"The distribution mode '%.64s' of a queue browser is not supported. Peek at the messages instead.", s.DistributionMode)
	}
	return refuseFilters(s.Filter)
}

// refuseFilters says which of the filters is not in place.
func refuseFilters(filters amqp.Raw) *amqp.Error {
	if filters == nil {
		return nil
	}
	r := amqp.NewReader(filters)
	pairs, n := r.Map()
	for range n {
		if name := pairs.StringBytes(); pairs.Err() == nil && string(name) != sessionFilter {
			return amqp.Errorf(amqp.ErrCondNotImplemented,
				"The filter '%.64s' is not supported. Filter by the rules of a subscription.", name)
		}
		pairs.Skip()
	}
	if err := message.Whole(&r, &pairs); err != nil {
		return amqp.Errorf(amqp.ErrCondInvalidField, "The filters of the source cannot be read: %v.", err)
	}
	return nil
}

// establishedSource is the part of the client's source that is in place. Nothing of it is kept when
// the link ends, and it has only the capabilities that AMQP has itself.
func establishedSource(s *amqp.Source) *amqp.Source {
	return &amqp.Source{
		Address: s.Address, HasAddress: s.HasAddress,
		DistributionMode: s.DistributionMode, Filter: s.Filter, DefaultOutcome: s.DefaultOutcome, Outcomes: s.Outcomes,
	}
}

// establishedTarget is establishedSource of a target.
func establishedTarget(t *amqp.Target) *amqp.Target {
	return &amqp.Target{Address: t.Address, HasAddress: t.HasAddress}
}

// defaultOutcome is the outcome of a delivery that its receiver has settled in a transaction that
// is rolled back. It is the source's default-outcome, else released (part 4 section 4.4.2, part 3
// section 3.5.3).
func defaultOutcome(s *amqp.Source) queue.Settlement {
	if s != nil && s.DefaultOutcome != nil {
		r := amqp.NewReader(s.DefaultOutcome)
		if st := amqp.DecodeState(&r); r.Err() == nil {
			// Of a rollback nothing is complete.
			if how, answer, refusal := settlementOf(st); answer != nil && refusal == nil && how.Outcome != queue.Complete {
				return how
			}
		}
	}
	how, _, _ := settlementOf(amqp.Released{})
	return how
}
