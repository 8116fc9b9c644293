// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"overdue/internal/broker/filter"
)

// A rule is a RuleConfig made ready for use. Immutable.
type rule struct {
	cfg       RuleConfig
	created   time.Time
	condition condition
	action    *filter.Action // nil: none
}

// A condition is what a filter comes down to.
type condition interface {
	Match(filter.Message) (bool, error)
}

// always is a condition that does not look.
type always bool

func (a always) Match(filter.Message) (bool, error) { return bool(a), nil }

func newRule(cfg RuleConfig, now time.Time) (*rule, error) {
	r := &rule{cfg: cfg, created: now}
	if err := r.compile(); err != nil {
		return nil, fmt.Errorf("%w: rule %.100q: %w", ErrInvalidConfig, cfg.Name, err)
	}
	return r, nil
}

func (r *rule) compile() error {
	if !ValidRuleName(r.cfg.Name) {
		return fmt.Errorf("the name: letters, digits, '.', '-' and '_', at most %d", MaxRuleName)
	}
	var err error
	if r.condition, err = newCondition(&r.cfg.Filter); err != nil {
		return fmt.Errorf("the filter: %w", err)
	}
	if a := &r.cfg.Action; a.SQL != "" {
		if r.action, err = filter.ParseAction(a.SQL, a.Parameters.parameters()); err != nil {
			return fmt.Errorf("the action: %w", err)
		}
	}
	return nil
}

func newCondition(f *Filter) (condition, error) {
	kinds := 0
	for _, is := range [...]bool{f.True, f.False, f.SQL != nil, f.Correlation != nil} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return nil, fmt.Errorf("it is of %d kinds", kinds)
	case f.SQL != nil:
		return filter.ParseFilter(f.SQL.Expression, f.SQL.Parameters.parameters())
	case f.Correlation != nil:
		return f.Correlation.condition(), nil
	}
	return always(!f.False), nil
}

// MaxRuleName is the most characters of the name of a rule.
const MaxRuleName = maxShortName

// ValidRuleName reports whether a rule may be called so.
func ValidRuleName(name string) bool {
	return name != "" && utf8.ValidString(name) && utf8.RuneCountInString(name) <= MaxRuleName &&
		(key(name) == key(DefaultRuleName) || !strings.ContainsFunc(name, outsideNames))
}

// outsideNames reports whether the service allows r in no segment of a path.
func outsideNames(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-_", r)
}

func (r *rule) info() RuleInfo { return RuleInfo{Config: r.cfg, CreatedAt: r.created} }

func (r *rule) sameName(o *rule) bool { return key(r.cfg.Name) == key(o.cfg.Name) }
