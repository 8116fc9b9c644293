// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"fmt"

	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// Why a topic dead-letters a message in a subscription instead of giving it out.
// The second is the service's; it documents that there is a reason in the first
// case, but not its words.
const (
	reasonFilterException = "FilterEvaluationException"
	reasonHeaderTooLarge  = "HeaderSizeExceeded"
)

// A distributor takes messages from a topic to its subscriptions. It belongs to
// one mover.
type distributor struct {
	topic   *Entity
	subject message.Subject
	copies  []queue.Message
}

// distribute gives a message to the subscriptions whose rules match. There is
// nothing that could keep it in the topic: where nobody wants it, it is gone.
func (t *distributor) distribute(d *queue.Delivery) (reason, description string) {
	t.subject.Reset(&d.View)
	m := onward(&d.View)
	for _, s := range t.topic.subscriptions() {
		t.give(s, m)
	}
	return "", ""
}

// give stores what the rules of s make of m: one copy for all rules without an
// action that match, and one for each that has one.
//
// A subscription that is disabled collects messages nevertheless. The service
// documents only that nobody can receive from it.
func (t *distributor) give(s *Entity, m queue.Message) {
	t.copies = t.copies[:0]
	plain := false
	var problem error
	for _, r := range s.rules.now() {
		if plain && r.action == nil {
			continue
		}
		matches, err := r.condition.Match(&t.subject)
		switch {
		case err != nil:
			problem = cmp.Or(problem, fmt.Errorf("the filter of the rule '%s': %w", r.cfg.Name, err))
		case !matches:
		case r.action == nil:
			plain = true
			t.copies = append(t.copies, m)
		default:
			if err := t.change(r, s, m); err != nil {
				problem = cmp.Or(problem, fmt.Errorf("the action of the rule '%s': %w", r.cfg.Name, err))
			}
		}
	}
	if problem != nil && !s.settings.Load().subscription.IgnoreFilterEvaluationExceptions {
		_ = s.queue.PassDead(reasonFilterException, problem.Error(), m) // an error: as below
	}
	if len(t.copies) == 0 {
		return
	}
	// It is no use of the subscription: without receivers it is idle. Without a session that the
	// subscription requires the copies are dead at once. An error: it has been deleted.
	if s.queue.Pass(t.copies...) == nil {
		s.move(false)
	}
	clear(t.copies)
}

// change appends the copy that the rule's action has been at.
func (t *distributor) change(r *rule, s *Entity, m queue.Message) error {
	c := message.NewAltered(&t.subject)
	if err := r.action.Apply(c); err != nil {
		return err
	}
	m, fits, err := c.Message(m, r.cfg.Name)
	switch {
	case err != nil:
		return err
	case !fits:
		_ = s.queue.PassDead(reasonHeaderTooLarge, // an error: as above
			"The action of the rule '"+r.cfg.Name+"' makes the properties too large.", m)
	default:
		t.copies = append(t.copies, m)
	}
	return nil
}
