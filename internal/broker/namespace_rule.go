// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"overdue/internal/servicebus/address"
)

// How many rules the subscriptions of a topic have, as the quotas of the service state it. A rule
// of neither kind counts as the latter.
const (
	maxSQLFilters         = 2_000
	maxCorrelationFilters = 100_000
)

// CreateRule adds a rule to a subscription. Errors: ErrEntityNotFound for the
// subscription, ErrEntityExists, ErrInvalidConfig, ErrTooManyEntities.
func (n *Namespace) CreateRule(topic, subscription string, cfg RuleConfig) (RuleInfo, error) {
	return n.entities.putRule(topic, subscription, cfg, func(rules []*rule, at int, r *rule) ([]*rule, error) {
		if at >= 0 {
			return nil, fmt.Errorf("%w: rule %.300s", ErrEntityExists, cfg.Name)
		}
		return append(rules, r), nil
	})
}

// UpdateRule replaces a rule of the same name. Errors: ErrEntityNotFound,
// ErrInvalidConfig, ErrTooManyEntities.
func (n *Namespace) UpdateRule(topic, subscription string, cfg RuleConfig) (RuleInfo, error) {
	return n.entities.putRule(topic, subscription, cfg, func(rules []*rule, at int, r *rule) ([]*rule, error) {
		if at < 0 {
			return nil, fmt.Errorf("%w: rule %.300s", ErrEntityNotFound, cfg.Name)
		}
		r.created = rules[at].created
		rules[at] = r
		return rules, nil
	})
}

// putRule makes a rule and lets put place it; at is that of its name, -1 where
// there is none.
func (es *entities) putRule(topic, subscription string, cfg RuleConfig, put func(rules []*rule, at int, r *rule) ([]*rule, error)) (RuleInfo, error) {
	e, err := es.findKind(KindSubscription, address.SubscriptionPath(topic, subscription))
	if err != nil {
		return RuleInfo{}, err
	}
	r, err := newRule(cfg, es.ns.Now().UTC())
	if err != nil {
		return RuleInfo{}, err
	}
	err = e.changeRules(func(rules []*rule) ([]*rule, error) {
		rules, err := put(rules, slices.IndexFunc(rules, r.sameName), r)
		if err != nil {
			return nil, err
		}
		return rules, e.topic.hasRoomLocked(e, rules)
	})
	if err != nil {
		return RuleInfo{}, err
	}
	return r.info(), nil
}

// hasRoomLocked reports whether topic e can have these rules, in place of those of
// one of its subscriptions; nil for a new one.
func (e *Entity) hasRoomLocked(of *Entity, rules []*rule) error {
	sql, others := 0, 0
	count := func(rules []*rule) {
		for _, r := range rules {
			if r.cfg.Filter.SQL != nil {
				sql++
			} else {
				others++
			}
		}
	}
	count(rules)
	for _, s := range e.subscriptions() {
		if s != of {
			count(s.rules.now())
		}
	}
	if sql > maxSQLFilters || others > maxCorrelationFilters {
		return fmt.Errorf("%w: a topic has %d SQL filters and %d others at most", ErrTooManyEntities, maxSQLFilters, maxCorrelationFilters)
	}
	return nil
}

// RuleInfo returns one rule. Errors: ErrEntityNotFound.
func (n *Namespace) RuleInfo(topic, subscription, name string) (RuleInfo, error) {
	rules, err := n.Rules(topic, subscription)
	if err != nil {
		return RuleInfo{}, err
	}
	for _, r := range rules {
		if key(r.Config.Name) == key(name) {
			return r, nil
		}
	}
	return RuleInfo{}, fmt.Errorf("%w: rule %.300s", ErrEntityNotFound, name)
}

// Rules returns the rules of a subscription, sorted by name. Errors:
// ErrEntityNotFound.
func (n *Namespace) Rules(topic, subscription string) ([]RuleInfo, error) {
	e, err := n.entities.findKind(KindSubscription, address.SubscriptionPath(topic, subscription))
	if err != nil {
		return nil, err
	}
	rules := e.rules.now()
	infos := make([]RuleInfo, len(rules))
	for i, r := range rules {
		infos[i] = r.info()
	}
	return infos, nil
}

// DeleteRule removes a rule. Errors: ErrEntityNotFound.
func (n *Namespace) DeleteRule(topic, subscription, name string) error {
	e, err := n.entities.findKind(KindSubscription, address.SubscriptionPath(topic, subscription))
	if err != nil {
		return err
	}
	return e.changeRules(func(rules []*rule) ([]*rule, error) {
		i := slices.IndexFunc(rules, func(r *rule) bool { return key(r.cfg.Name) == key(name) })
		if i < 0 {
			return nil, fmt.Errorf("%w: rule %.300s", ErrEntityNotFound, name)
		}
		return slices.Delete(rules, i, i+1), nil
	})
}

// changeRules replaces the rules by what change makes of a copy.
func (e *Entity) changeRules(change func([]*rule) ([]*rule, error)) error {
	return e.ns.b.disk.durably(func() error {
		e.ns.entities.mu.Lock()
		defer e.ns.entities.mu.Unlock()
		if e.ns.entities.goneLocked(e) {
			return fmt.Errorf("%w: %.300s", ErrEntityNotFound, e.path)
		}
		rules, err := change(slices.Clone(e.rules.now()))
		if err != nil {
			return err
		}
		if err := e.keep(e.settings.Load(), rules, time.Unix(0, e.updated.Load())); err != nil {
			return err
		}
		e.rules.set(rules)
		e.touch()
		return nil
	})
}

// rules is those of a subscription, sorted by name.
type rules struct{ sorted atomic.Pointer[[]*rule] }

// now is the rules as they are. Read-only.
func (rs *rules) now() []*rule {
	if sorted := rs.sorted.Load(); sorted != nil {
		return *sorted
	}
	return nil
}

// set sorts rules by name, as the service lists them.
func (rs *rules) set(rules []*rule) {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(key(a.cfg.Name), key(b.cfg.Name)) })
	rs.sorted.Store(&rules)
}
