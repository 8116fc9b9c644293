// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"fmt"
	"slices"

	"overdue/internal/servicebus/address"
)

// maxRules is how many rules a subscription holds.
const maxRules = 2_000

// CreateRule adds a rule to a subscription. Errors: ErrEntityNotFound for the
// subscription, ErrEntityExists, ErrInvalidConfig, ErrTooManyEntities.
func (n *Namespace) CreateRule(topic, subscription string, cfg RuleConfig) (RuleInfo, error) {
	e, err := n.findKind(KindSubscription, address.SubscriptionPath(topic, subscription))
	if err != nil {
		return RuleInfo{}, err
	}
	r, err := newRule(cfg, n.Now().UTC())
	if err != nil {
		return RuleInfo{}, err
	}
	err = e.changeRules(func(rules []*rule) ([]*rule, error) {
		switch {
		case slices.ContainsFunc(rules, r.sameName):
			return nil, fmt.Errorf("%w: rule %.300s", ErrEntityExists, cfg.Name)
		case len(rules) >= maxRules:
			return nil, fmt.Errorf("%w: %d rules", ErrTooManyEntities, maxRules)
		}
		return append(rules, r), nil
	})
	if err != nil {
		return RuleInfo{}, err
	}
	return r.info(), nil
}

// UpdateRule replaces a rule of the same name. Errors: ErrEntityNotFound,
// ErrInvalidConfig.
func (n *Namespace) UpdateRule(topic, subscription string, cfg RuleConfig) (RuleInfo, error) {
	e, err := n.findKind(KindSubscription, address.SubscriptionPath(topic, subscription))
	if err != nil {
		return RuleInfo{}, err
	}
	r, err := newRule(cfg, n.Now().UTC())
	if err != nil {
		return RuleInfo{}, err
	}
	err = e.changeRules(func(rules []*rule) ([]*rule, error) {
		i := slices.IndexFunc(rules, r.sameName)
		if i < 0 {
			return nil, fmt.Errorf("%w: rule %.300s", ErrEntityNotFound, cfg.Name)
		}
		r.created = rules[i].created
		rules[i] = r
		return rules, nil
	})
	if err != nil {
		return RuleInfo{}, err
	}
	return r.info(), nil
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
	e, err := n.findKind(KindSubscription, address.SubscriptionPath(topic, subscription))
	if err != nil {
		return nil, err
	}
	rules := e.rulesNow()
	infos := make([]RuleInfo, len(rules))
	for i, r := range rules {
		infos[i] = r.info()
	}
	return infos, nil
}

// DeleteRule removes a rule. Errors: ErrEntityNotFound.
func (n *Namespace) DeleteRule(topic, subscription, name string) error {
	e, err := n.findKind(KindSubscription, address.SubscriptionPath(topic, subscription))
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

// rulesNow of a subscription, sorted by name. Read-only.
func (e *Entity) rulesNow() []*rule {
	if rules := e.rules.Load(); rules != nil {
		return *rules
	}
	return nil
}

// changeRules replaces the rules by what change makes of a copy.
func (e *Entity) changeRules(change func([]*rule) ([]*rule, error)) error {
	e.ns.mu.Lock()
	defer e.ns.mu.Unlock()
	rules, err := change(slices.Clone(e.rulesNow()))
	if err != nil {
		return err
	}
	e.setRules(rules)
	e.touch()
	return nil
}

// setRules sorts rules by name, as the service lists them.
func (e *Entity) setRules(rules []*rule) {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(key(a.cfg.Name), key(b.cfg.Name)) })
	e.rules.Store(&rules)
}
