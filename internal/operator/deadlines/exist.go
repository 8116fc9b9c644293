// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"overdue/internal/config"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

// describeTimeout bounds one question of how an entity was made. Without an answer, a peek tells.
const describeTimeout = 5 * time.Second

// Missing returns an error if the namespace has no such place, by what it answered about the queue
// or topic. names are those that may have been meant.
func Missing(place dlq.Place, info entities.Info, answer error, names func() []string) error {
	var known []string
	what := "queue or topic"
	switch {
	case errors.Is(answer, entities.ErrNotFound):
		known = names()
	case answer != nil || place.Subscription == "":
		return nil
	default:
		what = "subscription"
		for _, s := range info.Subscriptions {
			if strings.EqualFold(s.Name, place.Subscription) {
				return nil
			}
			known = append(known, dlq.Place{Entity: place.Entity, Subscription: s.Name}.String())
		}
	}
	hint := "correct the name"
	if near := config.Nearest(place.String(), known); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return fmt.Errorf("there is no %s %q; %s", what, place.String(), hint)
}

// missing returns an error if there is no such place. known is false if the namespace does not
// describe its entities.
func (s *Source) missing(ctx context.Context, place dlq.Place) (known bool, err error) {
	if s.Describe == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	info, answer := s.Describe(ctx, place.Entity)
	return answer == nil, Missing(place, info, answer, func() []string { return s.Names(ctx) })
}

// mustExist is missing, but it peeks if the namespace does not describe its entities.
func (s *Source) mustExist(ctx context.Context, place dlq.Place) error {
	known, err := s.missing(ctx, place)
	if known || err != nil {
		return err
	}
	err = dlq.WalkAt(ctx, s.Links, place.String(), 0, func(*dlq.Letter) bool { return false })
	if link.Condition(err) == link.ConditionNotFound {
		return Missing(place, entities.Info{}, entities.ErrNotFound, func() []string { return nil })
	}
	return nil // a topic refuses a peek, and the right to listen there is not needed
}

// IsTopic reports whether the place is known to be a topic.
func (s *Source) IsTopic(ctx context.Context, place dlq.Place) bool {
	if s.Describe == nil || place.Subscription != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	info, err := s.Describe(ctx, place.Entity)
	return err == nil && info.Kind == entities.Topic
}
