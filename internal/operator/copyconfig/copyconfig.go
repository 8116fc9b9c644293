// SPDX-License-Identifier: Apache-2.0

// Package copyconfig reads the entities and rules of a namespace, for a file that makes them again.
package copyconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/broker/entityfile"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/atom"
	"overdue/internal/servicebus/entities"
)

// Bounds of a namespace, those of the service or beyond.
const (
	maxEntities = 10_000 // queues, and topics
	maxRules    = 2_000  // of a subscription
)

// atOnce is how many topics are read at a time. Each subscription costs a request.
const atOnce = 4

// A namespace throttles its administration API. A request that it turns away is made again, a few
// times.
const (
	maxTries = 8
	minPause = time.Second
	maxPause = time.Minute
)

// pageTimeout bounds one request.
const pageTimeout = 30 * time.Second

// Read reads all entities with their rules. The remarks say what the broker does not take. Errors:
// those of entities.Admin.
func Read(ctx context.Context, api *entities.Admin) (*broker.NamespaceSetup, entityfile.Remarks, error) {
	r := reader{api: api, remarks: entityfile.Remarks{}}
	err := r.list(ctx, "$Resources/Queues", maxEntities, func(name string, d *atom.Node) error {
		q, problems := adminapi.DescribedQueue(d)
		q.Name = name
		r.setup.Queues = append(r.setup.Queues, q)
		r.remark(name, problems...)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = r.list(ctx, "$Resources/Topics", maxEntities, func(name string, d *atom.Node) error {
		t, problems := adminapi.DescribedTopic(d)
		t.Name = name
		r.setup.Topics = append(r.setup.Topics, broker.TopicSetup{TopicConfig: t})
		r.remark(name, problems...)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	parts := make([]reader, len(r.setup.Topics))
	for i := range parts {
		parts[i] = reader{api: api, remarks: entityfile.Remarks{}}
		group.Go(func() error { return parts[i].readTopic(ctx, &r.setup.Topics[i]) })
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		for path, texts := range p.remarks {
			r.remarks[path] = append(r.remarks[path], texts...)
		}
	}
	return &r.setup, r.remarks, nil
}

type reader struct {
	api     *entities.Admin
	setup   broker.NamespaceSetup
	remarks entityfile.Remarks
}

func (r *reader) remark(path string, problems ...error) {
	for _, err := range problems {
		r.remarks[path] = append(r.remarks[path], "not copied, as the broker does not take it: "+err.Error())
	}
}

// readTopic reads the subscriptions of a topic.
func (r *reader) readTopic(ctx context.Context, t *broker.TopicSetup) error {
	err := r.list(ctx, t.Name+"/Subscriptions", broker.MaxSubscriptions, func(name string, d *atom.Node) error {
		s, problems := adminapi.DescribedSubscription(d)
		s.Name = name
		t.Subscriptions = append(t.Subscriptions, broker.SubscriptionSetup{SubscriptionConfig: s})
		r.remark(address.SubscriptionPath(t.Name, name), problems...)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range t.Subscriptions {
		s := &t.Subscriptions[i]
		path := address.SubscriptionPath(t.Name, s.Name)
		err := r.list(ctx, path+"/Rules", maxRules, func(name string, d *atom.Node) error {
			rule, problem := adminapi.DescribedRule(d)
			if problem != nil {
				r.remark(path, fmt.Errorf("rule %.60q: %w", name, problem))
				return nil
			}
			rule.Name = name
			s.Rules = append(s.Rules, rule)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// list calls each with the entries of a list. More than limit are an error.
func (r *reader) list(ctx context.Context, list string, limit int, each func(name string, d *atom.Node) error) error {
	for n, more := 0, true; more; {
		var entries []atom.Entry
		var err error
		if entries, more, err = r.page(ctx, list, n); err != nil {
			return err
		}
		for _, e := range entries {
			if err := each(e.Title, e.Description); err != nil {
				return err
			}
		}
		if n += len(entries); n > limit {
			return fmt.Errorf("list %s: it has more than %d entries", list, limit)
		}
	}
	return nil
}

// page is Admin.Page, which is asked again where the namespace is busy.
func (r *reader) page(ctx context.Context, list string, skip int) (entries []atom.Entry, more bool, err error) {
	for try := 1; ; try++ {
		asking, cancel := context.WithTimeout(ctx, pageTimeout)
		entries, more, err = r.api.Page(asking, list, skip)
		cancel()
		var busy interface{ RetryAfter() time.Duration }
		if try == maxTries || !errors.As(err, &busy) {
			return entries, more, err
		}
		select {
		case <-time.After(min(max(busy.RetryAfter(), minPause), maxPause)):
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}
