// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
)

func sqlRule(name, condition string) broker.RuleConfig {
	return broker.RuleConfig{Name: name, Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: condition}}}
}

func actionRule(name, condition, action string) broker.RuleConfig {
	r := sqlRule(name, condition)
	r.Action.SQL = action
	return r
}

// parcel is a message with something in every property that filters look at.
func parcel() *azservicebus.Message {
	return &azservicebus.Message{
		Body: []byte("parcel"), MessageID: new("m1"), CorrelationID: new("c1"), Subject: new("order.created"), To: new("there"),
		ReplyTo: new("here"), ContentType: new("text/plain"), ReplyToSessionID: new("r1"), PartitionKey: new("p1"),
		ApplicationProperties: map[string]any{"color": "red", "quantity": 10, "weight": 2.5, "fragile": true, "small": int8(3)},
	}
}

// manage sends a request to the $management node of an entity.
func (s *scene) manage(entity, operation string, args map[string]any) (status int32, response *amqp.Message) {
	s.Helper()
	session := s.raw.session()
	const replyTo = "replies"
	replies, err := session.NewReceiver(s.ctx, entity+"/$management", &amqp.ReceiverOptions{TargetAddress: replyTo})
	s.must(err)
	requests, err := session.NewSender(s.ctx, entity+"/$management", nil)
	s.must(err)
	s.must(requests.Send(s.ctx, &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: "1", ReplyTo: new(replyTo)},
		ApplicationProperties: map[string]any{"operation": "com.microsoft:" + operation},
		Value:                 args,
	}, nil))
	response, err = replies.Receive(s.soon(), nil)
	s.must(err)
	status, _ = response.ApplicationProperties["statusCode"].(int32)
	return status, response
}

// wantStatus sends a request and checks what becomes of it.
func (s *scene) wantStatus(want int32, condition, entity, operation string, args map[string]any) {
	s.Helper()
	status, m := s.manage(entity, operation, args)
	got, _ := m.ApplicationProperties["errorCondition"].(string)
	if symbol, is := m.ApplicationProperties["errorCondition"].(amqp.ErrCond); is {
		got = string(symbol)
	}
	if status != want || got != condition {
		s.Errorf("%s: status %d, condition %q; want %d, %q", operation, status, got, want, condition)
	}
}

var ruleSpecs = []spec{
	{name: "filters select messages", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		rules := map[string]broker.Filter{
			"all": {True: true}, "none": {False: true},
			"sql-user":        {SQL: &broker.SQLFilter{Expression: "COLOR = 'red' AND quantity * 2 >= 20"}},
			"sql-sys":         {SQL: &broker.SQLFilter{Expression: "sys.Label LIKE 'order.%' AND sys.MessageId IN ('m1', 'm2') AND sys.To = 'there'"}},
			"sql-other":       {SQL: &broker.SQLFilter{Expression: "color <> 'red' OR missing <> 'x'"}},
			"sql-typed":       {SQL: &broker.SQLFilter{Expression: "fragile = TRUE AND weight > 2.25 AND small = 3 AND EXISTS(color) AND missing IS NULL"}},
			"cor-id":          {Correlation: &broker.CorrelationFilter{CorrelationID: new("c1")}},
			"cor-id-other":    {Correlation: &broker.CorrelationFilter{CorrelationID: new("C1")}},
			"cor-all":         {Correlation: &broker.CorrelationFilter{MessageID: new("m1"), To: new("there"), ReplyTo: new("here"), Label: new("order.created"), ReplyToSessionID: new("r1"), ContentType: new("text/plain"), Properties: broker.ValuesOf(map[string]any{"color": "red", "fragile": true})}},
			"cor-one-differs": {Correlation: &broker.CorrelationFilter{MessageID: new("m1"), Properties: broker.ValuesOf(map[string]any{"color": "blue"})}},
			"cor-missing":     {Correlation: &broker.CorrelationFilter{Properties: broker.ValuesOf(map[string]any{"missing": "x"})}},
			"cor-type":        {Correlation: &broker.CorrelationFilter{Properties: broker.ValuesOf(map[string]any{"quantity": "10"})}},
		}
		for name, f := range rules {
			s.topics.subscribe(t, broker.SubscriptionConfig{Name: name}, broker.RuleConfig{Name: "r", Filter: f})
		}
		s.topics.publish(t, parcel())
		for _, name := range slices.Sorted(maps.Keys(rules)) {
			if selects := slices.Contains([]string{"all", "sql-user", "sql-sys", "sql-typed", "cor-id", "cor-all"}, name); selects {
				s.raw.drained(subscription(t, name), "parcel")
			} else {
				s.raw.drained(subscription(t, name))
			}
		}
	}},
	{name: "rules without an action make one copy, each with an action one more", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"},
			sqlRule("red", "color = 'red'"), sqlRule("many", "quantity > 1"), sqlRule("never", "1 = 0"),
			actionRule("first", "color = 'red'", "SET mark = 1"), actionRule("second", "quantity = 10", "SET mark = 2"),
			actionRule("third", "quantity = 11", "SET mark = 3"))
		s.topics.publish(t, parcel())
		marks := map[any]any{}
		for _, m := range s.receive(s.topics.subscribed(t, "a", nil), 3) {
			marks[m.ApplicationProperties["RuleName"]] = m.ApplicationProperties["mark"]
		}
		if want := map[any]any{nil: nil, "first": int64(1), "second": int64(2)}; !maps.Equal(marks, want) {
			s.Errorf("marks by RuleName are %v, want %v", marks, want)
		}
		s.raw.drained(subscription(t, "a"))
	}},
	{name: "an action changes its own copy", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"}, actionRule("r", "1=1",
			"SET color = 'blue'; SET quantity = quantity / 2; SET total = quantity * weight; REMOVE fragile; SET small = '4'; "+
				"SET sys.Label = sys.Label + '!'; SET sys.CorrelationId = color; REMOVE sys.To; SET sys.ReplyToSessionId = 'r2'; SET sys.TimeToLive = '00:01:00'"))
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "b"})
		s.topics.publish(t, parcel())
		a, b := s.one(s.topics.subscribed(t, "a", nil)), s.one(s.topics.subscribed(t, "b", nil))
		want := map[string]any{"color": "blue", "quantity": int64(5), "weight": 2.5, "small": int8(4), "total": 12.5, "RuleName": "r"}
		if !maps.Equal(a.ApplicationProperties, want) {
			s.Errorf("properties %v, want %v", a.ApplicationProperties, want)
		}
		if a.To != nil || *a.Subject != "order.created!" || *a.CorrelationID != "blue" || *a.ReplyTo != "here" || *a.ReplyToSessionID != "r2" ||
			a.TimeToLive == nil || a.TimeToLive.Minutes() != 1 || a.MessageID != "m1" || string(a.Body) != "parcel" || *a.ContentType != "text/plain" {
			s.Errorf("the copy is %+v", a)
		}
		if !maps.Equal(b.ApplicationProperties, map[string]any{"color": "red", "quantity": int64(10), "weight": 2.5, "fragile": true, "small": int8(3)}) ||
			*b.To != "there" || *b.Subject != "order.created" {
			s.Errorf("the other subscription got %v, to %v, subject %v; want what was sent", b.ApplicationProperties, *b.To, *b.Subject)
		}
	}},
	{name: "a filter that fails dead-letters the message unless configured otherwise", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		failing := []broker.RuleConfig{sqlRule("divides", "quantity / 0 = 1"), actionRule("changes", "1=1", "SET x = color * 2"), sqlRule("fine", "1=1")}
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "kept"}, failing...)
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "not", IgnoreFilterEvaluationExceptions: true}, failing...)
		s.topics.publish(t, parcel())
		s.raw.drained(subscription(t, "kept"), "parcel")
		s.raw.drained(subscription(t, "not"), "parcel")
		m := s.topics.deadIn(t, "kept", 1)[0]
		if m.DeadLetterReason == nil || m.DeadLetterErrorDescription == nil ||
			!regexp.MustCompile("divides|changes").MatchString(*m.DeadLetterErrorDescription) {
			s.Errorf("dead for %v: %v, want a reason and the name of a rule that failed", m.DeadLetterReason, m.DeadLetterErrorDescription)
		}
		s.raw.drained(subscription(t, "not") + "/$DeadLetterQueue")
	}},
	// As the JavaScript SDK's RuleManager test "list rules by page" has it.
	{name: "rules are listed by name", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		node := subscription(t, "a")
		for _, name := range []string{"sqlRule", "correlationRule"} {
			s.wantStatus(200, "", node, "add-rule", map[string]any{
				"rule-name": name, "rule-description": map[string]any{"sql-filter": map[string]any{"expression": "1=1"}},
			})
		}
		for i, want := range []string{"$Default", "correlationRule", "sqlRule"} {
			_, answer := s.manage(node, "enumerate-rules", map[string]any{"top": int32(1), "skip": int32(i)})
			body, _ := answer.Value.(map[string]any)
			if text := fmt.Sprint(body["rules"]); !strings.Contains(text, want) {
				s.Errorf("rule %d is %s, want %s", i, text, want)
			}
		}
	}},
	{name: "rules are managed over the subscription's own node", check: func(s *scene) {
		t := s.topics.topic(broker.TopicConfig{})
		s.topics.subscribe(t, broker.SubscriptionConfig{Name: "a"})
		node := subscription(t, "a")
		rule := map[string]any{
			"rule-name": "red",
			"rule-description": map[string]any{
				"sql-filter":      map[string]any{"expression": "color = 'red'"},
				"sql-rule-action": map[string]any{"expression": "SET marked = TRUE"},
			},
		}
		s.wantStatus(200, "", node, "add-rule", rule)
		s.wantStatus(409, "com.microsoft:entity-already-exists", node, "add-rule", rule)
		// The words that a test of the JavaScript SDK's RuleManager looks for.
		_, exists := s.manage(node, "add-rule", rule)
		if text, _ := exists.ApplicationProperties["statusDescription"].(string); !regexp.MustCompile(`The messaging entity '.*red' already exists\.`).MatchString(text) {
			s.Errorf("description %q, want the messaging entity that already exists", text)
		}
		s.wantStatus(200, "", node, "remove-rule", map[string]any{"rule-name": "$default"})
		s.wantStatus(404, "amqp:not-found", node, "remove-rule", map[string]any{"rule-name": "$Default"})
		// Only by these words does the JavaScript SDK distinguish a missing rule from other errors.
		_, m := s.manage(node, "remove-rule", map[string]any{"rule-name": "$Default"})
		if text, _ := m.ApplicationProperties["statusDescription"].(string); !regexp.MustCompile(`The messaging entity .* could not be found`).MatchString(text) {
			s.Errorf("description %q, want the messaging entity that could not be found", text)
		}
		s.wantStatus(400, "com.microsoft:argument-error", node, "add-rule", map[string]any{
			"rule-name": "bad", "rule-description": map[string]any{"sql-filter": map[string]any{"expression": "color ="}},
		})
		blue := parcel()
		blue.ApplicationProperties["color"] = "blue"
		s.topics.publish(t, parcel(), blue)
		if ms := s.raw.drained(node, "parcel"); ms[0].ApplicationProperties["marked"] != true {
			s.Errorf("properties %v, want marked", ms[0].ApplicationProperties)
		}
		s.wantStatus(200, "", node, "remove-rule", map[string]any{"rule-name": "red"})
		s.wantStatus(204, "", node, "enumerate-rules", map[string]any{"top": int32(10), "skip": int32(0)})
		s.topics.publish(t, parcel())
		s.raw.drained(node)
	}},
}
