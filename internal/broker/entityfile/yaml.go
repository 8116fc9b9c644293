// SPDX-License-Identifier: Apache-2.0

package entityfile

import (
	"io"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
)

// YAML writes entities as a configuration of Overdue, with a comment for each setting that it cannot
// hold. Settings that have their default are left out.
func YAML(w io.Writer, s *broker.NamespaceSetup, remarks Remarks) error {
	y := yamlFile{remarks}
	namespace := mapping{}
	queues := make([]*yaml.Node, len(s.Queues))
	for i := range s.Queues {
		q := &s.Queues[i]
		queues[i] = y.entity(q.Name, q.Name, queueProperties(q)).node()
	}
	namespace.list("queues", queues)
	topics := make([]*yaml.Node, len(s.Topics))
	for i := range s.Topics {
		topics[i] = y.topic(&s.Topics[i])
	}
	namespace.list("topics", topics)
	root := mapping{}
	root.set("broker", namespace.node())
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(root.node()); err != nil {
		return err
	}
	return e.Close()
}

type yamlFile struct{ remarks Remarks }

func (y yamlFile) topic(t *broker.TopicSetup) *yaml.Node {
	m := y.entity(t.Name, t.Name, topicProperties(&t.TopicConfig))
	subscriptions := make([]*yaml.Node, len(t.Subscriptions))
	for i := range t.Subscriptions {
		s := &t.Subscriptions[i]
		n := y.entity(s.Name, address.SubscriptionPath(t.Name, s.Name), subscriptionProperties(&s.SubscriptionConfig))
		var rules []*yaml.Node
		for _, r := range rulesOf(s.Rules) {
			rules = append(rules, r.yaml())
		}
		n.list("rules", rules)
		subscriptions[i] = n.node()
	}
	m.list("subscriptions", subscriptions)
	return m.node()
}

// entity begins an entity of that name.
func (y yamlFile) entity(name, path string, properties []property) *mapping {
	m := &mapping{}
	m.comments = append(m.comments, y.remarks[path]...)
	m.scalar("name", name)
	for i := range properties {
		p := &properties[i]
		switch {
		case !p.given():
		case p.in&inYAML == 0:
			m.comments = append(m.comments, "not copied, as this file has no such setting: "+p.text())
		default:
			m.scalar(lowerFirst(p.name), p.value)
		}
	}
	return m
}

func (r *ruleText) yaml() *yaml.Node {
	m := mapping{comments: r.left}
	m.scalar("name", r.name)
	if r.sql != "" {
		m.scalar("sql", r.sql)
	}
	if r.correlates() {
		c := mapping{}
		for _, f := range r.correlation {
			c.scalar(correlationKey(f.name), f.value)
		}
		if len(r.properties) > 0 {
			p := mapping{}
			for _, f := range r.properties {
				p.scalar(f.name, f.value)
			}
			c.set("properties", p.node())
		}
		m.set("correlation", c.node())
	}
	if r.action != "" {
		m.scalar("action", r.action)
	}
	return m.node()
}

// correlationKey is the key of a system property. A label of the service is called subject there.
func correlationKey(name string) string {
	if name == "Label" {
		return "subject"
	}
	return lowerFirst(name)
}

func lowerFirst(name string) string {
	return string(unicode.ToLower(rune(name[0]))) + name[1:]
}

// A mapping is one of YAML, with comments above it.
type mapping struct {
	comments []string
	content  []*yaml.Node
}

func (m *mapping) set(key string, value *yaml.Node) {
	m.content = append(m.content, scalar(key), value)
}

func (m *mapping) scalar(key string, value any) {
	if d, is := value.(time.Duration); is {
		value = duration.Format(d)
	}
	m.set(key, scalar(value))
}

// list sets a list, unless it is empty.
func (m *mapping) list(key string, items []*yaml.Node) {
	if len(items) > 0 {
		m.set(key, &yaml.Node{Kind: yaml.SequenceNode, Content: items})
	}
}

func (m *mapping) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Content: m.content}
	for i, c := range m.comments {
		m.comments[i] = strings.Join(strings.Fields(c), " ") // a comment ends with its line
	}
	n.HeadComment = strings.Join(m.comments, "\n")
	return n
}

// scalar is a bool, a number or a string.
func scalar(value any) *yaml.Node {
	n := &yaml.Node{}
	_ = n.Encode(value) // it does not fail for those
	return n
}
