// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"reflect"
	"strings"
)

// differ notes a sentence about something in n.
func (b *Broker) differ(n *Namespace, format string, args ...any) {
	sentence := fmt.Sprintf(format, args...)
	if n.name != "" {
		sentence = "namespace " + n.name + ": " + sentence
	}
	b.differences = append(b.differences, sentence)
}

// compare notes in what e, which comes from the disk, is not as the configuration has it.
func (es *entities) compare(e *Entity, kind Kind, s *settings, rules []*rule) {
	if e.kind != kind {
		es.ns.b.differ(es.ns, "%s %s is a %s on disk; the disk's holds", kind, e.path, e.kind)
		return
	}
	for _, d := range append(e.settings.Load().differences(kind, s), e.rules.differences(rules)...) {
		es.ns.b.differ(es.ns, "%s %s: %s; the disk's holds", kind, e.path, d)
	}
}

// differences are in what s, of the disk, is not like c, of the configuration.
func (s *settings) differences(kind Kind, c *settings) (all []string) {
	of := func(s *settings) reflect.Value {
		return reflect.ValueOf(map[Kind]any{
			KindQueue:        s.queue,
			KindTopic:        s.topic,
			KindSubscription: s.subscription,
		}[kind])
	}
	disk, configured := of(s), of(c)
	for _, f := range reflect.VisibleFields(disk.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || f.Name == "Name" { // its parts follow; e was found by it, without case
			continue
		}
		a, b := disk.FieldByIndex(f.Index).Interface(), configured.FieldByIndex(f.Index).Interface()
		switch {
		case reflect.DeepEqual(a, b):
		case f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map: // long, or secret
			all = append(all, fmt.Sprintf("%s on disk and in the configuration differ", name))
		case f.Type.Kind() == reflect.String:
			all = append(all, fmt.Sprintf("%s is %q on disk and %q in the configuration", name, a, b))
		default:
			all = append(all, fmt.Sprintf("%s is %v on disk and %v in the configuration", name, a, b))
		}
	}
	return all
}

// differences are in what the rules of the disk are not those of the configuration.
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
			all = append(all, fmt.Sprintf("rule %s is on disk and not in the configuration", r.cfg.Name))
		case !reflect.DeepEqual(r.cfg, c.cfg):
			all = append(all, fmt.Sprintf("rule %s on disk is another than in the configuration", r.cfg.Name))
		}
	}
	for _, r := range configured {
		if missing[key(r.cfg.Name)] != nil {
			all = append(all, fmt.Sprintf("rule %s is in the configuration and not on disk", r.cfg.Name))
		}
	}
	return all
}
