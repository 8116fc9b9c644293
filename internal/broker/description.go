// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
)

// A description is an entity as the disk keeps it: JSON, with one of Queue, Topic and Subscription.
// A missing field has its default. A field that is new needs a new version of the store, because
// who does not know it would lose it.
type description struct {
	Namespace    string              `json:"namespace,omitempty"`
	Created      time.Time           `json:"created"`
	Updated      time.Time           `json:"updated"`
	Queue        *QueueConfig        `json:"queue,omitempty"`
	Topic        *TopicConfig        `json:"topic,omitempty"`
	Subscription *subscriptionOnDisk `json:"subscription,omitempty"`
}

type subscriptionOnDisk struct {
	Topic string `json:"topic"`
	SubscriptionConfig
	Rules []RuleInfo `json:"rules"`
}

// describe returns what the disk keeps of e, once it has these settings and rules.
func (e *Entity) describe(s *settings, rules []*rule, updated time.Time) ([]byte, error) {
	d := description{
		Namespace: e.ns.name,
		Created:   e.created,
		Updated:   updated.UTC(),
	}
	switch e.kind {
	case KindQueue:
		d.Queue = &s.queue
	case KindTopic:
		d.Topic = &s.topic
	case KindSubscription:
		d.Subscription = &subscriptionOnDisk{
			Topic:              e.topic.path,
			SubscriptionConfig: s.subscription,
			Rules:              make([]RuleInfo, len(rules)),
		}
		for i, r := range rules {
			d.Subscription.Rules[i] = r.info()
		}
	}
	return json.Marshal(d)
}

func readDescription(text []byte) (d description, err error) {
	if err := readJSON(text, &d); err != nil {
		return d, err
	}
	kinds := 0
	for _, is := range [...]bool{d.Queue != nil, d.Topic != nil, d.Subscription != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return d, fmt.Errorf("the description is of %d kinds", kinds)
	}
	return d, d.check()
}

func (d *description) check() error {
	switch {
	case d.Queue != nil:
		return d.Queue.check()
	case d.Topic != nil:
		return d.Topic.check()
	}
	return d.Subscription.check(d.Subscription.Topic)
}

// parts are what an entity is made of.
func (d *description) parts() (kind Kind, path string, s settings) {
	switch {
	case d.Queue != nil:
		return KindQueue, d.Queue.Name, settings{queue: d.Queue.withDefaults()}
	case d.Topic != nil:
		return KindTopic, d.Topic.Name, settings{topic: d.Topic.withDefaults()}
	}
	c := d.Subscription.SubscriptionConfig
	return KindSubscription, address.SubscriptionPath(d.Subscription.Topic, c.Name), settings{subscription: c.withDefaults()}
}

// readJSON reads text strictly: what is not known would be lost when it is written again.
func readJSON(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// A valueOnDisk is one of Values. AMQP keeps its type.
type valueOnDisk struct {
	Key   string `json:"key"`
	Value []byte `json:"amqp"`
}

// Types of Go that AMQP does not have.
const (
	typeInt      amqp.Symbol = "overdue:int"      // long
	typeDuration amqp.Symbol = "overdue:duration" // long, nanoseconds
	typeTime     amqp.Symbol = "overdue:time"     // string, as in RFC 3339; without a zone it has NoZone
)

// MarshalJSON implements json.Marshaler.
func (vs Values) MarshalJSON() ([]byte, error) {
	all := make([]valueOnDisk, len(vs))
	for i, v := range vs {
		encoded, err := amqp.AppendValue(nil, toDisk(v.Value))
		if err != nil {
			return nil, fmt.Errorf("value %.100q: %w", v.Key, err)
		}
		all[i] = valueOnDisk{v.Key, encoded}
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (vs *Values) UnmarshalJSON(text []byte) error {
	var all []valueOnDisk
	if err := readJSON(text, &all); err != nil {
		return err
	}
	*vs = make(Values, len(all))
	for i, v := range all {
		r := amqp.NewReader(v.Value)
		value, err := fromDisk(r.Value())
		if err = cmp.Or(r.Err(), err); err != nil {
			return fmt.Errorf("value %.100q: %w", v.Key, err)
		}
		(*vs)[i] = queue.Property{Key: v.Key, Value: value}
	}
	return nil
}

func toDisk(v any) any {
	switch v := v.(type) {
	case int:
		return amqp.Described{Descriptor: typeInt, Value: int64(v)}
	case time.Duration:
		return amqp.Described{Descriptor: typeDuration, Value: int64(v)}
	case time.Time:
		layout := time.RFC3339Nano
		if v.Location() == NoZone {
			layout = TimeWithoutZone
		}
		return amqp.Described{Descriptor: typeTime, Value: v.Format(layout)}
	}
	return v
}

// fromDisk is the opposite of toDisk.
func fromDisk(v any) (any, error) {
	d, is := v.(amqp.Described)
	if !is {
		return v, nil
	}
	number, isNumber := d.Value.(int64)
	text, isText := d.Value.(string)
	switch {
	case d.Descriptor == typeInt && isNumber:
		return int(number), nil
	case d.Descriptor == typeDuration && isNumber:
		return time.Duration(number), nil
	case d.Descriptor == typeTime && isText:
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return t, nil
		}
		return time.ParseInLocation(TimeWithoutZone, text, NoZone)
	}
	return v, nil
}

// EntityOf returns which entity a description of the disk is of.
func EntityOf(text []byte) (namespace, path string, err error) {
	d, err := readDescription(text)
	if err != nil {
		return "", "", err
	}
	_, path, _ = d.parts()
	return d.Namespace, path, nil
}
