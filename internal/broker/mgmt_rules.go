// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"math"
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// The rules of a subscription, over its own $management node. The names and
// codes are those of the service's documentation, "AMQP request-response based
// operations"; JavaScript compares the codes.
const (
	codeRuleDescription   uint64 = 0x13700000004
	codeEmptyAction       uint64 = 0x13700000005
	codeSQLAction         uint64 = 0x13700000006
	codeSQLFilter         uint64 = 0x1370000006
	codeTrueFilter        uint64 = 0x1370000007
	codeFalseFilter       uint64 = 0x1370000008
	codeCorrelationFilter uint64 = 0x1370000009
)

// ruleDescriptors are the symbols that stand for the codes. A client may send
// either.
var ruleDescriptors = map[amqp.Symbol]uint64{
	"com.microsoft:rule-description:list":   codeRuleDescription,
	"com.microsoft:empty-rule-action:list":  codeEmptyAction,
	"com.microsoft:sql-rule-action:list":    codeSQLAction,
	"com.microsoft:sql-filter:list":         codeSQLFilter,
	"com.microsoft:true-filter:list":        codeTrueFilter,
	"com.microsoft:false-filter:list":       codeFalseFilter,
	"com.microsoft:correlation-filter:list": codeCorrelationFilter,
}

// subscription returns the topic and the name of the subscription that e is.
func (e *Entity) subscription() (topic, name string, err *amqp.Error) {
	if e.kind != KindSubscription {
		return "", "", amqp.Errorf(amqp.ErrCondNotAllowed, "'%.260s' is no subscription and has no rules.", e.path)
	}
	return e.topic.path, e.settings.Load().subscription.Name, nil
}

// addRule adds a rule, which is described by a map or by a described list.
func (m management) addRule(e *Entity, _ *queue.Queue, a *arguments) response {
	topic, subscription, refusal := e.subscription()
	if refusal != nil {
		return refused(refusal)
	}
	var cfg RuleConfig
	a.read("rule-name", false, func(r *amqp.Reader) { cfg.Name = r.String() })
	a.read("rule-description", true, func(r *amqp.Reader) {
		if !readRule(r.Value(), &cfg) {
			a.fail("The argument 'rule-description' holds no filter that is known, or an action that is not.")
		}
	})
	if a.err != nil {
		return refused(a.err)
	}
	switch _, err := m.ns.CreateRule(topic, subscription, cfg); {
	case errors.Is(err, ErrEntityExists):
		return refused(alreadyExists(e.reference() + "|" + cfg.Name))
	case err != nil:
		return ruleFailure(err)
	}
	return ok(nil)
}

// removeRule removes a rule by its name.
func (m management) removeRule(e *Entity, _ *queue.Queue, a *arguments) response {
	topic, subscription, refusal := e.subscription()
	if refusal != nil {
		return refused(refusal)
	}
	var name string
	a.read("rule-name", true, func(r *amqp.Reader) { name = r.String() })
	if a.err != nil {
		return refused(a.err)
	}
	switch err := m.ns.DeleteRule(topic, subscription, name); {
	case errors.Is(err, ErrEntityNotFound):
		// The JavaScript SDK knows what is not found by these words alone.
		return refused(notFound(e.reference() + "|" + name))
	case err != nil:
		return ruleFailure(err)
	}
	return ok(nil)
}

// enumerateRules returns a page of rules, by name.
func (m management) enumerateRules(e *Entity, _ *queue.Queue, a *arguments) response {
	if _, _, refusal := e.subscription(); refusal != nil {
		return refused(refusal)
	}
	top, skip := a.integer("top", true), a.integer("skip", false)
	switch {
	case a.err != nil:
		return refused(a.err)
	case top <= 0 || top > math.MaxInt32 || skip < 0 || skip > math.MaxInt32:
		return refused(amqp.Errorf(condOutOfRange, "The argument 'top' has to be positive, and 'skip' not negative."))
	}
	rules := e.rules.now()
	rules = rules[min(int(skip), len(rules)):]
	rules = rules[:min(int(top), len(rules))]
	if len(rules) == 0 {
		return noContent()
	}
	// A list and no array, whatever the documentation says: Java and .NET know
	// nothing else here.
	all := make(amqp.List, len(rules))
	for i, r := range rules {
		all[i] = amqp.Map{{Key: "rule-description", Value: describeRule(&r.cfg)}}
	}
	return okOne("rules", all)
}

// ruleFailure says how an error of the namespace looks in a response.
func ruleFailure(err error) response {
	condition := amqp.ErrCondInternalError
	switch {
	case errors.Is(err, queue.ErrNoRoom), errors.Is(err, queue.ErrNotStored):
		return failure(err)
	case errors.Is(err, ErrEntityNotFound), errors.Is(err, ErrClosed):
		condition = amqp.ErrCondNotFound
	case errors.Is(err, ErrInvalidConfig):
		condition = condArgumentError
	case errors.Is(err, ErrTooManyEntities):
		condition = amqp.ErrCondResourceLimitExceeded
	}
	return refused(&amqp.Error{Condition: condition, Description: strings.TrimPrefix(err.Error(), "broker: ")})
}

// readRule reads a rule into cfg. It reports false for what has no meaning.
func readRule(v any, cfg *RuleConfig) bool {
	if code, list, is := described(v); is {
		if code != codeRuleDescription || len(list) < 2 || !readFilter(list[0], &cfg.Filter) {
			return false
		}
		if len(list) > 2 && cfg.Name == "" {
			cfg.Name, _ = list[2].(string)
		}
		return readAction(list[1], &cfg.Action)
	}
	m, is := v.(amqp.Map)
	if !is {
		return false
	}
	known := false
	for name, code := range filterNames {
		f, _ := m.Get(name)
		if f == nil {
			continue
		}
		if fields, is := f.(amqp.Map); is {
			known = readFilterList(code, listOf(code, fields), &cfg.Filter)
		} else {
			known = readFilter(f, &cfg.Filter)
		}
	}
	action, _ := m.Get("sql-rule-action")
	return known && readAction(action, &cfg.Action)
}

// described takes a described list apart.
func described(v any) (code uint64, list amqp.List, is bool) {
	d, is := v.(amqp.Described)
	if !is {
		return 0, nil, false
	}
	switch c := d.Descriptor.(type) {
	case uint64:
		code = c
	case amqp.Symbol:
		code = ruleDescriptors[c]
	}
	list, is = d.Value.(amqp.List)
	return code, list, is
}

// filterNames are the filters of a rule that is described by a map.
var filterNames = map[string]uint64{
	"sql-filter": codeSQLFilter, "correlation-filter": codeCorrelationFilter, "true-filter": codeTrueFilter, "false-filter": codeFalseFilter,
}

// listOf puts the fields of a filter in their order.
func listOf(code uint64, fields amqp.Map) (list amqp.List) {
	names := []string{"expression"}
	if code == codeCorrelationFilter {
		names = nil
		for _, f := range CorrelationFields {
			names = append(names, f.Key)
		}
		names = append(names, "properties")
	}
	for _, name := range names {
		v, _ := fields.Get(name)
		list = append(list, v)
	}
	return list
}

func readFilter(v any, f *Filter) bool {
	code, list, is := described(v)
	return is && readFilterList(code, list, f)
}

func readFilterList(code uint64, list amqp.List, f *Filter) bool {
	switch code {
	case codeTrueFilter:
		f.True = true
	case codeFalseFilter:
		f.False = true
	case codeSQLFilter:
		if len(list) == 0 {
			return false
		}
		text, is := list[0].(string)
		f.SQL = &SQLFilter{Expression: text}
		return is
	case codeCorrelationFilter:
		f.Correlation = &CorrelationFilter{}
		for i, v := range list {
			if i < len(CorrelationFields) {
				if !setText(CorrelationFields[i].Of(f.Correlation), v) {
					return false
				}
			} else if i == len(CorrelationFields) {
				return setProperties(f.Correlation, v)
			}
		}
	default:
		return false
	}
	return true
}

// setText sets a field that is null, or text.
func setText(field **string, v any) bool {
	switch v := v.(type) {
	case nil:
	case string:
		*field = &v
	case amqp.Symbol:
		text := string(v)
		*field = &text
	default:
		return false
	}
	return true
}

func setProperties(f *CorrelationFilter, v any) bool {
	m, is := v.(amqp.Map)
	for _, p := range m {
		name, is := p.Key.(string)
		if !is {
			return false
		}
		f.Properties = append(f.Properties, queue.Property{Key: name, Value: p.Value})
	}
	return is || v == nil
}

// readAction reads an action: none, its text, or its text in a map or a list.
func readAction(v any, a *Action) bool {
	code, list, is := described(v)
	switch {
	case v == nil, is && code == codeEmptyAction:
		return true
	case is && (code != codeSQLAction || len(list) == 0):
		return false
	case is:
		v = list[0]
	}
	if m, is := v.(amqp.Map); is {
		v, _ = m.Get("expression")
	}
	a.SQL, is = v.(string)
	return is || v == nil
}

// describeRule is the rule as a response has it.
func describeRule(cfg *RuleConfig) amqp.Described {
	action := amqp.Described{Descriptor: codeEmptyAction, Value: amqp.List{}}
	if cfg.Action.SQL != "" {
		action = amqp.Described{Descriptor: codeSQLAction, Value: amqp.List{cfg.Action.SQL}}
	}
	return amqp.Described{Descriptor: codeRuleDescription, Value: amqp.List{describeFilter(&cfg.Filter), action, cfg.Name}}
}

func describeFilter(f *Filter) amqp.Described {
	switch {
	case f.SQL != nil:
		return amqp.Described{Descriptor: codeSQLFilter, Value: amqp.List{f.SQL.Expression}}
	case f.Correlation != nil:
		list := make(amqp.List, 0, len(CorrelationFields)+1)
		for _, field := range CorrelationFields {
			if text := *field.Of(f.Correlation); text != nil {
				list = append(list, *text)
			} else {
				list = append(list, nil)
			}
		}
		properties := make(amqp.Map, 0, len(f.Correlation.Properties))
		for _, p := range f.Correlation.Properties {
			properties = append(properties, amqp.Pair{Key: p.Key, Value: message.WireValue(message.FilterValue(p.Value), nil)})
		}
		return amqp.Described{Descriptor: codeCorrelationFilter, Value: append(list, properties)}
	case f.False:
		return amqp.Described{Descriptor: codeFalseFilter, Value: amqp.List{}}
	}
	return amqp.Described{Descriptor: codeTrueFilter, Value: amqp.List{}}
}
