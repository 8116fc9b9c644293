// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"context"
	"errors"
	"fmt"

	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

// Failure turns an error of reading a place into one that says what to do. nil stays nil.
func Failure(place Place, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before the end")
	}
	if unreachable := failure.Unreachable(err); unreachable != nil {
		return unreachable
	}
	switch condition := link.Condition(err); {
	case condition == link.ConditionNotAllowed:
		return NoMessages(place)
	case condition == link.ConditionNotFound && place.Subscription == "":
		return fmt.Errorf("there is no queue %q; correct the name, or write topic/Subscriptions/name for a subscription", place.Entity)
	case condition == link.ConditionNotFound:
		return fmt.Errorf("there is no subscription %q", place)
	case link.Unauthorized(err):
		return failure.NoRightToListen(place.String())
	}
	return fmt.Errorf("read %s: %s", place, failure.Reason(err))
}

// NoMessages is the error of a place that has no messages of its own, as a topic.
func NoMessages(place Place) error {
	return fmt.Errorf("%s is a topic, or another entity without messages; name a subscription, as %s/Subscriptions/name", place, place)
}
