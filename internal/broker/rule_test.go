// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/servicebus/address"
)

func TestRulesAreCheckedWhenTheyAreMade(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{})
	ok := Filter{SQL: &SQLFilter{Expression: "a = @p", Parameters: ValuesOf(map[string]any{"@p": 1})}}
	for _, c := range []struct {
		cfg  RuleConfig
		want string // empty: it is fine
	}{
		{RuleConfig{Name: "fine", Filter: ok, Action: Action{SQL: "SET a = @q", Parameters: ValuesOf(map[string]any{"@q": time.Second})}}, ""},
		{RuleConfig{Name: "zero"}, ""},
		{RuleConfig{Name: strings.Repeat("é", 50)}, ""},
		{RuleConfig{Name: ""}, "the name"},
		{RuleConfig{Name: "a/b"}, "the name"},
		{RuleConfig{Name: "a\n"}, "the name"},
		{RuleConfig{Name: "a b"}, "the name"},
		{RuleConfig{Name: "$other"}, "the name"},
		{RuleConfig{Name: "a!"}, "the name"},
		{RuleConfig{Name: "-_.a"}, ""},
		{RuleConfig{Name: strings.Repeat("é", 51)}, "the name"},
		{RuleConfig{Name: "bad", Filter: Filter{SQL: &SQLFilter{Expression: "a = @p"}}}, "the filter: at character 5: expected a parameter that has a value"},
		{RuleConfig{Name: "bad", Filter: Filter{SQL: &SQLFilter{}}}, "the filter: at character 1"},
		{RuleConfig{Name: "bad", Filter: Filter{True: true, SQL: ok.SQL}}, "the filter: it is of 2 kinds"},
		{RuleConfig{Name: "bad", Action: Action{SQL: "SET"}}, "the action: at character 4"},
	} {
		_, err := n.CreateRule("t", "s", c.cfg)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v, want nil", c.cfg, err)
		case c.want != "" && (!errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want ErrInvalidConfig with %q", c.cfg, err, c.want)
		}
	}
}

func TestCorrelationComparesByTypeAndCase(t *testing.T) {
	m := amqp.Message{}
	properties, err := amqp.AppendValue(nil, amqp.Map{
		{Key: "s", Value: "Text"}, {Key: "i", Value: int32(5)}, {Key: "u", Value: uint64(1 << 63)}, {Key: "f", Value: 5.0}, {Key: "b", Value: true},
		{Key: "id", Value: amqp.UUID{1}}, {Key: "at", Value: amqp.Timestamp(1000)}, {Key: "nil", Value: nil}, {Key: "sym", Value: amqp.Symbol("x")},
		{Key: "char", Value: amqp.Char('c')}, {Key: "bin", Value: []byte("x")}, {Key: "span", Value: amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: int64(10_000_000)}},
		{Key: "off", Value: amqp.Described{Descriptor: amqp.TypeDateTimeOffset, Value: int64(amqp.EpochTicks + 10_000_000)}},
		{Key: "d128", Value: amqp.Decimal128{0: 0x0c, 1: 0x3e, 15: 125}}, {Key: "d32", Value: amqp.Decimal32{0: 0x32, 3: 125}},
		{Key: "uri", Value: amqp.Described{Descriptor: message.TypeURI, Value: "http://x"}}, {Key: "odd", Value: amqp.Described{Descriptor: uint64(1), Value: int64(1)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.ApplicationProperties = properties
	m.Properties = (&amqp.Properties{MessageID: "m", CorrelationID: uint64(7), To: new("")}).Raw()
	in, refusal := message.Read(m.Append(nil))
	if refusal != nil {
		t.Fatal(refusal)
	}
	for _, c := range []struct {
		filter CorrelationFilter
		want   bool
	}{
		{CorrelationFilter{}, true},
		{CorrelationFilter{CorrelationID: new("7"), MessageID: new("m"), To: new("")}, true},
		{CorrelationFilter{ReplyTo: new("")}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"s": "Text", "I": int64(5), "f": int8(5), "b": true, "u": uint64(1 << 63)})}, true},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"s": "text"})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"i": "5"})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"b": "true"})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"b": false})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"id": amqp.UUID{1}, "at": time.Unix(1, 0)})}, true},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"id": amqp.UUID{1}, "sym": "x", "char": "c", "uri": "http://x"})}, true},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"span": time.Second, "off": time.Unix(1, 0)})}, true},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"d128": 12.5, "d32": amqp.Decimal64{0: 0x31, 1: 0xa0, 7: 125}})}, true},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"d128": 12})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"d128": "12.5"})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"nil": nil})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"bin": []byte("x")})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"odd": int64(1)})}, false},
		{CorrelationFilter{Properties: ValuesOf(map[string]any{"missing": "x"})}, false},
	} {
		n := topicOf(t, SubscriptionConfig{}, RuleConfig{Name: "r", Filter: Filter{Correlation: &c.filter}})
		e, err := n.Entity("t")
		if err != nil {
			t.Fatal(err)
		}
		if err := e.send(false, in); err != nil {
			t.Fatal(err)
		}
		info, err := n.SubscriptionInfo("t", "s")
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Counts.Active == 1; got != c.want {
			t.Errorf("%+v matches: %v, want %v", c.filter, got, c.want)
		}
	}
}

// ask sends a request to the $management node of subscription s.
func ask(t *testing.T, n *Namespace, operation string, args amqp.Map) (status int32, body amqp.Raw) {
	t.Helper()
	raw, err := amqp.AppendValue(nil, args)
	if err != nil {
		t.Fatal(err)
	}
	message := amqp.Message{ApplicationProperties: operationProperties(t, "com.microsoft:"+operation)}
	payload := amqp.AppendDescriptor(message.Append(nil), amqp.CodeAMQPValue)
	req, refusal := readRequest(append(payload, raw...))
	if refusal != nil {
		t.Fatal(refusal)
	}
	res := management{n, address.Address{Name: "t", Subscription: "S", Node: address.Management}, new(transactions)}.answer(req)
	if (res.status >= 300) != (res.condition != "") || (res.status >= 300) != strings.Contains(res.description, " ") {
		t.Logf("%s: %d %s %s", operation, res.status, res.condition, res.description)
	}
	return res.status, res.body
}

func operationProperties(t *testing.T, name string) amqp.Raw {
	t.Helper()
	raw, err := amqp.AppendValue(nil, amqp.Map{{Key: "operation", Value: name}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A list is what clients encode themselves, with either kind of descriptor, and
// what every client has to decode.
func TestRulesComeAndGoAsDescribedLists(t *testing.T) {
	list := func(code any, elements ...any) amqp.Described {
		return amqp.Described{Descriptor: code, Value: append(amqp.List{}, elements...)}
	}
	properties := amqp.Map{
		{Key: "z", Value: int64(1)}, {Key: "a", Value: int32(1)}, {Key: "d", Value: amqp.Decimal128{0: 0x0c, 1: 0x3e, 15: 125}},
		{Key: "d64", Value: amqp.Decimal64{0: 0x31, 1: 0xa0, 7: 125}}, {Key: "d32", Value: amqp.Decimal32{0: 0x32, 3: 125}},
		{Key: "c", Value: amqp.Char('c')}, {Key: "t", Value: amqp.Timestamp(7)}, {Key: "g", Value: amqp.UUID{1}},
		{Key: "s", Value: amqp.Symbol("x")}, {Key: "span", Value: amqp.Described{Descriptor: amqp.TypeTimeSpan, Value: int64(7)}},
		{Key: "o", Value: amqp.Described{Descriptor: amqp.TypeDateTimeOffset, Value: int64(amqp.EpochTicks + 7)}},
		{Key: "u", Value: amqp.Described{Descriptor: message.TypeURI, Value: "http://x"}}, {Key: "b", Value: []byte("x")},
		{Key: "f", Value: float32(0.5)}, {Key: "n", Value: nil}, {Key: "u8", Value: uint8(1)},
	}
	correlation := amqp.List{"c", nil, "to", nil, amqp.Symbol("label"), nil, nil, nil, amqp.Map{{Key: "k", Value: int32(1)}}}
	for i, c := range []struct {
		in   any
		want amqp.Described // nil name: as asked for
	}{
		{amqp.Map{{Key: "sql-filter", Value: amqp.Map{{Key: "expression", Value: "1=1"}}}}, list(codeSQLFilter, "1=1")},
		{amqp.Map{{Key: "sql-filter", Value: list(codeSQLFilter, "1=1")}}, list(codeSQLFilter, "1=1")},
		{amqp.Map{{Key: "true-filter", Value: amqp.Map{}}}, list(codeTrueFilter)},
		{amqp.Map{{Key: "false-filter", Value: amqp.Map{}}, {Key: "sql-filter", Value: nil}}, list(codeFalseFilter)},
		{list(codeRuleDescription, list(codeTrueFilter), list(codeEmptyAction)), list(codeTrueFilter)},
		{list(amqp.Symbol("com.microsoft:rule-description:list"), list(amqp.Symbol("com.microsoft:false-filter:list")), nil), list(codeFalseFilter)},
		{list(codeRuleDescription, amqp.Described{Descriptor: amqp.Symbol("com.microsoft:correlation-filter:list"), Value: correlation}, nil),
			list(codeCorrelationFilter, "c", nil, "to", nil, "label", nil, nil, nil, amqp.Map{{Key: "k", Value: int32(1)}})},
		{amqp.Map{{Key: "correlation-filter", Value: amqp.Map{{Key: "correlation-id", Value: "c"}, {Key: "to", Value: "to"}, {Key: "label", Value: "label"},
			{Key: "session-id", Value: nil}, {Key: "properties", Value: amqp.Map{{Key: "k", Value: int32(1)}}}}}},
			list(codeCorrelationFilter, "c", nil, "to", nil, "label", nil, nil, nil, amqp.Map{{Key: "k", Value: int32(1)}})},
		{amqp.Map{{Key: "correlation-filter", Value: amqp.Map{{Key: "properties", Value: properties}}}},
			list(codeCorrelationFilter, nil, nil, nil, nil, nil, nil, nil, nil, properties)},
	} {
		n := topicOf(t, SubscriptionConfig{})
		name := fmt.Sprint("rule", i)
		if status, _ := ask(t, n, "add-rule", amqp.Map{{Key: "rule-name", Value: name}, {Key: "rule-description", Value: c.in}}); status != statusOK {
			t.Errorf("adding %v: status %d, want 200", c.in, status)
			continue
		}
		want := amqp.Map{{Key: "rule-description", Value: list(codeRuleDescription, c.want, list(codeEmptyAction), name)}}
		if diff := cmp.Diff([]any{want}, enumerate(t, n, 10, 1)); diff != "" {
			t.Errorf("%v is enumerated (-want +got):\n%s", c.in, diff)
		}
	}
}

// enumerate returns a page of rules.
func enumerate(t *testing.T, n *Namespace, top, skip int32) []any {
	t.Helper()
	status, body := ask(t, n, "enumerate-rules", amqp.Map{{Key: "top", Value: top}, {Key: "skip", Value: skip}})
	if status == statusNoContent {
		return nil
	}
	r, ok := amqp.MapLookup(body, "rules")
	if status != statusOK || !ok {
		t.Fatalf("enumerate-rules: status %d, body %x", status, body)
	}
	rules, ok := r.Value().(amqp.List)
	if !ok {
		t.Fatalf("rules are no list: %v", r.Err())
	}
	return rules
}

func TestActionsComeInThreeForms(t *testing.T) {
	const text = "SET a = 1"
	for _, in := range []any{text, amqp.Map{{Key: "expression", Value: text}}, amqp.Described{Descriptor: codeSQLAction, Value: amqp.List{text, int32(20)}},
		amqp.Described{Descriptor: amqp.Symbol("com.microsoft:sql-rule-action:list"), Value: amqp.List{text}}} {
		n := topicOf(t, SubscriptionConfig{})
		description := amqp.Map{{Key: "sql-filter", Value: amqp.Map{{Key: "expression", Value: "1=1"}}}, {Key: "sql-rule-action", Value: in}}
		if status, _ := ask(t, n, "add-rule", amqp.Map{{Key: "rule-name", Value: "r"}, {Key: "rule-description", Value: description}}); status != statusOK {
			t.Errorf("%v: status %d, want 200", in, status)
			continue
		}
		rule, _ := enumerate(t, n, 1, 1)[0].(amqp.Map)
		got, _ := rule[0].Value.(amqp.Described).Value.(amqp.List)
		if diff := cmp.Diff(any(amqp.Described{Descriptor: codeSQLAction, Value: amqp.List{text}}), got[1]); diff != "" {
			t.Errorf("%v is enumerated (-want +got):\n%s", in, diff)
		}
	}
}

func TestRulesAreEnumeratedPageByPage(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{}, sqlRule("a", "1=1", ""), sqlRule("b", "1=1", ""), sqlRule("c", "1=1", ""))
	for _, c := range []struct {
		top, skip int32
		want      int
	}{{2, 0, 2}, {2, 2, 1}, {2, 3, 0}, {1<<31 - 1, 0, 3}, {1, 1<<31 - 1, 0}} {
		if got := len(enumerate(t, n, c.top, c.skip)); got != c.want {
			t.Errorf("top %d, skip %d: %d rules, want %d", c.top, c.skip, got, c.want)
		}
	}
	for _, args := range []amqp.Map{{{Key: "top", Value: int32(0)}}, {{Key: "top", Value: int32(1)}, {Key: "skip", Value: int32(-1)}}, {}} {
		if status, _ := ask(t, n, "enumerate-rules", args); status != statusBadRequest {
			t.Errorf("%v: status %d, want 400", args, status)
		}
	}
}

func TestRulesThatMeanNothingAreRefused(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{})
	described := func(code any, elements ...any) any {
		return amqp.Described{Descriptor: code, Value: append(amqp.List{}, elements...)}
	}
	for _, description := range []any{
		nil, "x", amqp.Map{}, amqp.Map{{Key: "sql-filter", Value: amqp.Map{}}}, amqp.Map{{Key: "sql-filter", Value: "1=1"}},
		amqp.Map{{Key: "correlation-filter", Value: amqp.Map{{Key: "to", Value: int32(1)}}}},
		amqp.Map{{Key: "correlation-filter", Value: amqp.Map{{Key: "properties", Value: "x"}}}},
		amqp.Map{{Key: "correlation-filter", Value: amqp.Map{{Key: "properties", Value: amqp.Map{{Key: int32(1), Value: "x"}}}}}},
		amqp.Map{{Key: "true-filter", Value: amqp.Map{}}, {Key: "sql-rule-action", Value: int32(1)}},
		amqp.Map{{Key: "true-filter", Value: amqp.Map{}}, {Key: "sql-rule-action", Value: described(codeSQLAction)}},
		described(codeRuleDescription), described(codeSQLFilter, "1=1", nil), described(codeRuleDescription, "x", nil),
		described(codeRuleDescription, described(codeSQLFilter), nil), described(codeRuleDescription, described(uint64(1)), nil),
		described(codeRuleDescription, described(codeCorrelationFilter, int32(1)), nil),
	} {
		if status, _ := ask(t, n, "add-rule", amqp.Map{{Key: "rule-name", Value: "r"}, {Key: "rule-description", Value: description}}); status != statusBadRequest {
			t.Errorf("%v: status %d, want 400", description, status)
		}
	}
	if rules, err := n.Rules("t", "s"); err != nil || len(rules) != 1 {
		t.Errorf("%d rules, %v; want the default one", len(rules), err)
	}
	raw, err := amqp.AppendValue(nil, amqp.Map{{Key: "top", Value: int32(1)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, operation := range []string{"add-rule", "remove-rule", "enumerate-rules"} {
		m := respond(t, management{n, address.Address{Name: "t", Node: address.Management}, new(transactions)}.answer, "com.microsoft:"+operation, raw)
		if m.ApplicationProperties["statusCode"] != statusBadRequest {
			t.Errorf("%s on a topic: status %v, want 400", operation, m.ApplicationProperties["statusCode"])
		}
	}
}

// The bound is that of the topic, not of a subscription.
func TestATopicHasAsManyFiltersAsTheServiceAllows(t *testing.T) {
	rules := make([]RuleConfig, maxSQLFilters-1)
	for i := range rules {
		rules[i] = sqlRule(fmt.Sprint("r", i), "a = 1", "")
	}
	n := topicOf(t, SubscriptionConfig{}, rules...)
	if _, err := n.CreateSubscription("t", SubscriptionConfig{Name: "other"}, sqlRule("r", "a = 1", "")); err != nil {
		t.Errorf("SQL filter %d: %v", maxSQLFilters, err)
	}
	for _, name := range []string{"s", "other"} {
		if _, err := n.CreateRule("t", name, sqlRule("more", "a = 1", "")); !errors.Is(err, ErrTooManyEntities) {
			t.Errorf("one SQL filter more in %s: %v, want ErrTooManyEntities", name, err)
		}
		correlation := RuleConfig{Name: "correlation", Filter: Filter{Correlation: &CorrelationFilter{}}}
		if _, err := n.CreateRule("t", name, correlation); err != nil {
			t.Errorf("a correlation filter in %s: %v", name, err)
		}
		if _, err := n.UpdateRule("t", name, sqlRule("correlation", "a = 1", "")); !errors.Is(err, ErrTooManyEntities) {
			t.Errorf("a correlation filter of %s that becomes one in SQL: %v, want ErrTooManyEntities", name, err)
		}
	}
	if _, err := n.UpdateRule("t", "other", sqlRule("r", "a = 2", "")); err != nil {
		t.Errorf("a change of the last one: %v", err)
	}
	third := SubscriptionConfig{Name: "third"}
	if _, err := n.CreateSubscription("t", third, sqlRule("r", "a = 1", "")); !errors.Is(err, ErrTooManyEntities) {
		t.Errorf("a subscription with one more: %v, want ErrTooManyEntities", err)
	}
	if _, err := n.CreateSubscription("t", third); err != nil {
		t.Errorf("a subscription without rules: %v", err)
	}
}

func TestATopicCountsItsFilters(t *testing.T) {
	n := topicOf(t, SubscriptionConfig{}, RuleConfig{Name: DefaultRuleName}, RuleConfig{Name: "false", Filter: Filter{False: true}}, sqlRule("sql", "1=1", ""),
		RuleConfig{Name: "correlation", Filter: Filter{Correlation: &CorrelationFilter{}}})
	got, err := n.TopicInfo("t")
	if err != nil || got.SQLFilters != 3 || got.CorrelationFilters != 1 {
		t.Errorf("%d SQL and %d correlation filters, %v; want 3 and 1", got.SQLFilters, got.CorrelationFilters, err)
	}
}
