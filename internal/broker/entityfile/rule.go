// SPDX-License-Identifier: Apache-2.0

package entityfile

import (
	"fmt"
	"reflect"
	"strings"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

// A ruleText is a rule as both files have it.
type ruleText struct {
	name        string
	sql         string  // "" where correlation is not nil, or the rule lets everything through
	correlation []field // system properties
	properties  []field // application properties of correlation
	action      string
	left        []string // what no file can hold
}

type field struct {
	name  string
	value any
}

func (r *ruleText) correlates() bool { return len(r.correlation)+len(r.properties) > 0 }

// lets reports whether the rule lets everything through and changes nothing.
func (r *ruleText) lets() bool { return r.sql == "" && r.action == "" && !r.correlates() }

// nothing is the rule of a subscription that has none, and so gets nothing. In a file, a
// subscription without rules gets everything.
var nothing = ruleText{
	name: "nothing",
	sql:  "1=0",
	left: []string{"this subscription has no rule and gets nothing, as with this one"},
}

// rulesOf are the rules to write; none where the subscription gets everything.
func rulesOf(rules []broker.RuleConfig) []ruleText {
	if len(rules) == 0 {
		return []ruleText{nothing}
	}
	all := make([]ruleText, len(rules))
	for i := range rules {
		all[i] = textOf(&rules[i])
	}
	if len(all) == 1 && all[0].lets() && strings.EqualFold(all[0].name, broker.DefaultRuleName) {
		return nil
	}
	return all
}

func textOf(r *broker.RuleConfig) ruleText {
	t := ruleText{name: r.Name, action: r.Action.SQL}
	t.parameters("action", r.Action.Parameters)
	switch f := &r.Filter; {
	case f.SQL != nil:
		t.sql = f.SQL.Expression
		t.parameters("filter", f.SQL.Parameters)
	case f.False:
		t.sql = "1=0"
	case f.Correlation != nil:
		t.setCorrelation(f.Correlation)
	}
	return t
}

func (r *ruleText) parameters(of string, values broker.Values) {
	for _, v := range values {
		r.left = append(r.left, fmt.Sprintf("the %s of rule %.60q has the parameter %.60s, which a file cannot set", of, r.name, v.Key))
	}
}

func (r *ruleText) setCorrelation(f *broker.CorrelationFilter) {
	for _, known := range broker.CorrelationFields {
		switch text := *known.Of(f); {
		case text == nil:
		case *text == "":
			r.left = append(r.left, fmt.Sprintf("rule %.60q wants an empty %s, which a file cannot say", r.name, known.Property))
		default:
			r.correlation = append(r.correlation, field{known.Property.String(), *text})
		}
	}
	for _, p := range f.Properties {
		if value, fits := plain(p); fits {
			r.properties = append(r.properties, field{p.Key, value})
			continue
		}
		r.left = append(r.left, fmt.Sprintf("rule %.60q wants the property %.60q to have a value of the type %T, which a file cannot hold", r.name, p.Key, p.Value))
	}
	if !r.correlates() {
		r.sql = "1=1" // nothing is left that could differ
	}
}

// plain is a value that both files can hold.
func plain(p queue.Property) (value any, fits bool) {
	switch v := reflect.ValueOf(p.Value); v.Kind() {
	case reflect.Bool, reflect.String:
		return p.Value, v.Type().PkgPath() == ""
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), v.Type().PkgPath() == "" // a duration is one as well
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return v.Uint(), v.Type().PkgPath() == ""
	case reflect.Float32, reflect.Float64:
		return v.Float(), true
	}
	return nil, false
}
