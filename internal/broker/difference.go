// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"reflect"
	"strings"
)

// sentence is one about something in the namespace.
func (es *entities) sentence(format string, args ...any) string {
	sentence := fmt.Sprintf(format, args...)
	if name := es.ns.name; name != "" {
		sentence = "namespace " + name + ": " + sentence
	}
	return sentence
}

// differLocked notes a sentence about what is not as the configuration has it.
func (es *entities) differLocked(format string, args ...any) {
	es.differences = append(es.differences, es.sentence(format, args...))
}

// compareLocked notes in what e, which is there already, is not as the configuration has it.
func (es *entities) compareLocked(e *Entity, kind Kind, s *settings, rules []*rule) {
	if e.kind != kind {
		es.differLocked("%s %s is a %s in force", kind, e.path, e.kind)
		return
	}
	for _, d := range append(e.settings.Load().differences(kind, s), e.rules.differences(rules)...) {
		es.differLocked("%s %s: %s", kind, e.path, d)
	}
}

// differences are in what s, in force, is not like c, of the configuration.
func (s *settings) differences(kind Kind, c *settings) (all []string) {
	of := func(s *settings) reflect.Value {
		return reflect.ValueOf(map[Kind]any{
			KindQueue:        s.queue,
			KindTopic:        s.topic,
			KindSubscription: s.subscription,
		}[kind])
	}
	there, configured := of(s), of(c)
	for _, f := range reflect.VisibleFields(there.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || f.Name == "Name" { // its parts follow; e was found by it, without case
			continue
		}
		a, b := there.FieldByIndex(f.Index).Interface(), configured.FieldByIndex(f.Index).Interface()
		switch {
		case reflect.DeepEqual(a, b):
		case f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map: // long, or secret
			all = append(all, fmt.Sprintf("%s in force and in the configuration differ", name))
		case f.Type.Kind() == reflect.String:
			all = append(all, fmt.Sprintf("%s is %q in force and %q in the configuration", name, a, b))
		default:
			all = append(all, fmt.Sprintf("%s is %v in force and %v in the configuration", name, a, b))
		}
	}
	return all
}

// differences are in what the rules in force are not those of the configuration.
func (rs *rules) differences(configured []*rule) (all []string) {
	missing := make(map[string]*rule)
	for _, r := range configured {
		missing[key(r.cfg.Name)] = r
	}
	for _, r := range rs.now() {
		c := missing[key(r.cfg.Name)]
		delete(missing, key(r.cfg.Name))
		switch {
		case c == nil:
			all = append(all, fmt.Sprintf("rule %s is in force and not in the configuration", r.cfg.Name))
		case !reflect.DeepEqual(r.cfg, c.cfg):
			all = append(all, fmt.Sprintf("rule %s in force is another than in the configuration", r.cfg.Name))
		}
	}
	for _, r := range configured {
		if missing[key(r.cfg.Name)] != nil {
			all = append(all, fmt.Sprintf("rule %s is in the configuration and not in force", r.cfg.Name))
		}
	}
	return all
}
