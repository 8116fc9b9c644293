// SPDX-License-Identifier: Apache-2.0

package entityfile

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
)

// The parts of a Config.json.
type (
	emulatorFile struct {
		UserConfig emulatorConfig
	}
	emulatorConfig struct {
		Namespaces []emulatorNamespace
		Logging    emulatorLogging
	}
	emulatorLogging   struct{ Type string }
	emulatorNamespace struct {
		Name   string
		Queues []emulatorEntity
		Topics []emulatorEntity
	}
	emulatorEntity struct {
		Name          string
		Properties    map[string]any
		Subscriptions []emulatorEntity `json:",omitempty"`
		Rules         []emulatorEntity `json:",omitempty"`
	}
)

// emulatorName is the name of the namespace that the emulator's own file has.
const emulatorName = "sbemulatorns"

// Emulator writes entities as a Config.json of the official emulator. It returns a sentence for each
// setting that the file cannot hold.
func Emulator(w io.Writer, s *broker.NamespaceSetup, remarks Remarks) (left []string, err error) {
	e := emulatorWriter{remarks: remarks}
	n := emulatorNamespace{
		Name:   emulatorName,
		Queues: []emulatorEntity{},
		Topics: []emulatorEntity{},
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		n.Queues = append(n.Queues, e.entity(q.Name, q.Name, queueProperties(q)))
	}
	for i := range s.Topics {
		n.Topics = append(n.Topics, e.topic(&s.Topics[i]))
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(emulatorFile{emulatorConfig{
		Namespaces: []emulatorNamespace{n},
		Logging:    emulatorLogging{Type: "File"},
	}})
	return e.left, err
}

type emulatorWriter struct {
	remarks Remarks
	left    []string
}

func (e *emulatorWriter) leave(path string, texts ...string) {
	for _, text := range texts {
		e.left = append(e.left, path+": "+text)
	}
}

func (e *emulatorWriter) topic(t *broker.TopicSetup) emulatorEntity {
	topic := e.entity(t.Name, t.Name, topicProperties(&t.TopicConfig))
	for i := range t.Subscriptions {
		s := &t.Subscriptions[i]
		path := address.SubscriptionPath(t.Name, s.Name)
		subscription := e.entity(s.Name, path, subscriptionProperties(&s.SubscriptionConfig))
		for _, r := range rulesOf(s.Rules) {
			e.leave(path, r.left...)
			subscription.Rules = append(subscription.Rules, r.emulator())
		}
		topic.Subscriptions = append(topic.Subscriptions, subscription)
	}
	return topic
}

// entity writes every property that the file knows, since the emulator has defaults of its own.
func (e *emulatorWriter) entity(name, path string, properties []property) emulatorEntity {
	e.leave(path, slices.Clone(e.remarks[path])...)
	one := emulatorEntity{Name: name, Properties: map[string]any{}}
	for i := range properties {
		p := &properties[i]
		switch d, isDuration := p.value.(time.Duration); {
		case p.in&inEmulator == 0 && p.given():
			e.leave(path, "not copied, as Config.json has no such setting: "+p.text())
		case p.in&inEmulator == 0:
		case isDuration && d == 0:
			one.Properties[p.name] = duration.Forever
		case isDuration:
			one.Properties[p.name] = duration.FormatISO8601(d)
		default:
			one.Properties[p.name] = p.value
		}
	}
	return one
}

func (r *ruleText) emulator() emulatorEntity {
	type sql struct{ SqlExpression string }
	properties := map[string]any{}
	switch {
	case r.correlates():
		filter := map[string]any{}
		for _, f := range r.correlation {
			filter[f.name] = f.value
		}
		if len(r.properties) > 0 {
			custom := map[string]any{}
			for _, f := range r.properties {
				custom[f.name] = f.value
			}
			filter["Properties"] = custom
		}
		properties["FilterType"], properties["CorrelationFilter"] = "Correlation", filter
	case r.sql == "":
		properties["FilterType"], properties["SqlFilter"] = "Sql", sql{"1=1"}
	default:
		properties["FilterType"], properties["SqlFilter"] = "Sql", sql{r.sql}
	}
	if r.action != "" {
		properties["Action"] = sql{r.action}
	}
	return emulatorEntity{Name: r.name, Properties: properties}
}
