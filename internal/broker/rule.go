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
	if !validRuleName(r.cfg.Name) {
		return fmt.Errorf("the name: 1 to %d characters, none of them a slash", maxShortName)
	}
	var err error
	if r.condition, err = newCondition(&r.cfg.Filter); err != nil {
		return fmt.Errorf("the filter: %w", err)
	}
	a := &r.cfg.Action
	switch {
	case a.SQL != "" && a.Unknown != nil:
		return fmt.Errorf("the action is of two kinds")
	case a.SQL != "":
		if r.action, err = filter.ParseAction(a.SQL, a.Parameters); err != nil {
			return fmt.Errorf("the action: %w", err)
		}
	}
	return nil
}

func newCondition(f *Filter) (condition, error) {
	kinds := 0
	for _, is := range [...]bool{f.True, f.False, f.SQL != nil, f.Correlation != nil, f.Unknown != nil} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return nil, fmt.Errorf("it is of %d kinds", kinds)
	case f.SQL != nil:
		return filter.ParseFilter(f.SQL.Expression, f.SQL.Parameters)
	case f.Correlation != nil:
		return newCorrelation(f.Correlation), nil
	}
	return always(!f.False && f.Unknown == nil), nil
}

// validRuleName reports whether a rule may be called so. Beside [DefaultRuleName]
// the service takes letters, digits and punctuation; what it refuses of those is
// not documented.
func validRuleName(name string) bool {
	return name != "" && utf8.ValidString(name) && utf8.RuneCountInString(name) <= maxShortName &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || !unicode.IsPrint(r) })
}

func (r *rule) info() RuleInfo { return RuleInfo{Config: r.cfg, CreatedAt: r.created} }

func (r *rule) sameName(o *rule) bool { return key(r.cfg.Name) == key(o.cfg.Name) }
