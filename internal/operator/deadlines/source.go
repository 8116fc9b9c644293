// SPDX-License-Identifier: Apache-2.0

// Package deadlines shows operators what Overdue knows of deadlines: [List] counts the pending
// ones and names the next, [Explain] shows the history of one message. Both only peek, so they take
// no lock and disturb no consumer.
//
// Both read the companions where they wait, which is the monitor queue or Redis. A companion is
// deleted when the monitor has finished with it, and a message when it is completed, so neither
// function knows what is over. The exception is what the monitor keeps of its latest notifications.
package deadlines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"overdue/internal/config"
	"overdue/internal/monitorqueue"
	"overdue/internal/operator/dlq"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

// maxMessages bounds how many messages or companions of one queue are read.
const maxMessages = 1_000_000

// A Source is a namespace, seen by an operator. Links and MonitorQueue are required.
type Source struct {
	Links         *link.Namespace
	MonitorQueue  string
	MonitorQueues int               // how many there are, of which MonitorQueue is the first; 0 = 1
	Redis         *redisstore.Store // what the monitors share; nil if they share nothing
	// CompanionsInRedis says that Redis keeps the companions, and not the monitor queue.
	CompanionsInRedis bool
	// Describe says how a queue or topic was made; nil: nobody says it. With it Names is required,
	// the names of those that may have been meant where there is none.
	Describe func(ctx context.Context, name string) (entities.Info, error)
	Names    func(context.Context) []string
}

// keeper names what keeps the companions.
func (s *Source) keeper() string {
	if s.CompanionsInRedis {
		return "redis"
	}
	return "the monitor queue"
}

// errNoData is the error of a companion whose body is no data section.
var errNoData = errors.New("its body is no data section")

// A stored companion is a companion with what its keeper says of it.
type stored struct {
	scheduler.Companion
	err error // why the body cannot be read, if it cannot

	due     time.Time
	pending bool // due is in the future; otherwise a monitor has the companion, or none runs

	reason, description string // why it failed, of one that did
}

// pending shows f the companions that a monitor has yet to finish with, until f returns false.
func (s *Source) pending(ctx context.Context, f func(*stored) (more bool)) error {
	if s.CompanionsInRedis {
		err := s.Redis.Companions().Walk(ctx, func(it redisstore.Item) bool {
			return !scheduler.IsCompanion(it.ContentType, it.Subject) || f(fromRedis(&it))
		})
		return wrapRedis(err)
	}
	return s.peekAll(ctx, func(queue string) string { return queue }, f)
}

// failed shows f the companions that no monitor could finish with, until f returns false.
func (s *Source) failed(ctx context.Context, f func(*stored) (more bool)) error {
	if s.CompanionsInRedis {
		err := s.Redis.Companions().Dead(ctx, func(d redisstore.Dead) bool {
			if !scheduler.IsCompanion(d.ContentType, d.Subject) {
				return true
			}
			c := fromRedis(&d.Item)
			c.reason, c.description = d.Reason, d.Description
			return f(c)
		})
		return wrapRedis(err)
	}
	return s.peekAll(ctx, func(queue string) string { return dlq.Place{Entity: queue}.Path() }, f)
}

func fromRedis(it *redisstore.Item) *stored {
	c := &stored{due: it.Due, pending: it.Due.After(time.Now())}
	c.Companion, c.err = scheduler.ParseCompanion(it.Body)
	return c
}

func wrapRedis(err error) error {
	if err != nil {
		return fmt.Errorf("read companions: %w", err)
	}
	return nil
}

// peekAll shows f the companions of a place of each monitor queue.
func (s *Source) peekAll(ctx context.Context, place func(queue string) string, f func(*stored) (more bool)) error {
	more := true
	for _, name := range monitorqueue.Of(s.MonitorQueue, s.MonitorQueues).Names() {
		err := s.peek(ctx, name, place(name), func(c *stored) bool {
			more = f(c)
			return more
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// peek shows f the companions of a monitor queue, or of its dead-letter queue, at path.
func (s *Source) peek(ctx context.Context, queue, path string, f func(*stored) (more bool)) error {
	err := dlq.WalkAt(ctx, s.Links, path, 0, func(l *dlq.Letter) bool {
		if !scheduler.IsCompanion(l.ContentType, l.Subject) {
			return true
		}
		return f(fromMessage(l))
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case link.Condition(err) == link.ConditionNotFound:
		return noMonitorQueue(queue)
	case link.Unauthorized(err):
		return failure.NoRightToListen(path)
	}
	return cmp.Or(failure.Unreachable(err), fmt.Errorf("read companions in %s: %s", path, failure.Reason(err)))
}

func noMonitorQueue(name string) error {
	return fmt.Errorf("there is no monitor queue %q; create it with `overdue doctor --fix`", name)
}

var errInterrupted = errors.New("interrupted before the end")

func fromMessage(l *dlq.Letter) *stored {
	c := &stored{
		due: l.ScheduledTime, pending: l.State == link.Scheduled, reason: l.Reason, description: l.Description,
	}
	if c.due.IsZero() {
		c.due = l.EnqueuedTime
	}
	c.err = errNoData
	if data, isData := l.Body().([]byte); isData {
		c.Companion, c.err = scheduler.ParseCompanion(data)
	}
	return c
}

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

// MustExist returns an error if the namespace has no such place. It peeks if the namespace does not
// describe its entities.
func (s *Source) MustExist(ctx context.Context, place dlq.Place) error {
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
