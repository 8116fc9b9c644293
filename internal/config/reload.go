// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// live are the settings that a running process takes up; all others need a restart. A list counts with what stands in it.
// Of the entities of the embedded broker it takes up those that are new.
var live = []string{"log.level", "monitor.deadline", "monitor.entities", "alerts", "listen.keys", "broker.emulatorConfig", "broker.queues", "broker.topics"}

// IsLive reports whether a setting of the table is one of them.
func IsLive(path string) bool {
	return slices.ContainsFunc(live, func(l string) bool { return path == l || strings.HasPrefix(path, l+"[]") })
}

// WithLive is c with what is live of next.
func (c *Config) WithLive(next *Config) *Config {
	all := *c
	all.Log.Level, all.Monitor, all.Alerts, all.Listen.Keys = next.Log.Level, next.Monitor, next.Alerts, next.Listen.Keys
	all.Broker.EmulatorConfig, all.Broker.Queues, all.Broker.Topics = next.Broker.EmulatorConfig, next.Broker.Queues, next.Broker.Topics
	all.Broker.emulator = next.Broker.emulator
	all.Sources = c.Sources.clone()
	all.Sources.text = next.Sources.text
	for _, path := range live {
		all.Sources.Keep(path, next.Sources)
	}
	all.Canary.addToMonitored(&all)
	return &all
}

// valueAt is the value under a dotted key.
func valueAt(m map[string]any, key string) any {
	head, rest, nested := strings.Cut(key, ".")
	if !nested {
		return m[head]
	}
	inner, _ := m[head].(map[string]any)
	return valueAt(inner, rest)
}

// Differing names the settings in which two configurations differ, what files hold among it, in the order of config.
func Differing(a, b *Config) (keys []string) {
	var walk func(x, y reflect.Value, path string)
	walk = func(x, y reflect.Value, path string) {
		for i := range x.NumField() {
			f := x.Type().Field(i)
			name := strings.TrimPrefix(path+"."+f.Tag.Get("mapstructure"), ".")
			switch {
			case f.Tag.Get("mapstructure") == "": // it comes from what other settings name
			case f.Type.Kind() == reflect.Struct:
				walk(x.Field(i), y.Field(i), name)
			case !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()):
				keys = append(keys, name)
			}
		}
	}
	walk(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), "")
	if !reflect.DeepEqual(a.Broker.emulator, b.Broker.emulator) && !slices.Contains(keys, "broker.emulatorConfig") {
		keys = append(keys, "broker.emulatorConfig")
	}
	return keys
}

// Changes says what differs in what is live, with the names of those elements of lists that do.
func Changes(a, b *Config) []string {
	all := []string{}
	if a.Log.Level != b.Log.Level {
		all = append(all, fmt.Sprintf("log.level is %s, was %s", b.Log.Level, a.Log.Level))
	}
	if a.Monitor.Deadline != b.Monitor.Deadline {
		all = append(all, fmt.Sprintf("monitor.deadline is %s, was %s", b.Monitor.Deadline, a.Monitor.Deadline))
	}
	all = append(all, elements("monitor.entities", a.Monitor.Entities, b.Monitor.Entities, entityName)...)
	nameless := func(all []Alert) []Alert {
		all = slices.Clone(all)
		for i := range all {
			all[i].Key = ""
		}
		return all
	}
	all = append(all, elements("alerts", nameless(a.Alerts), nameless(b.Alerts), sinkName)...)
	return append(all, elements("listen.keys", a.Listen.Keys, b.Listen.Keys, endpointKeyName)...)
}

// Lost names the sinks, entities and keys that a has and b has not.
func Lost(a, b *Config) []string {
	return slices.Concat(gone("monitor.entities", a.Monitor.Entities, b.Monitor.Entities, entityName),
		gone("alerts", a.Alerts, b.Alerts, sinkName), gone("listen.keys", a.Listen.Keys, b.Listen.Keys, endpointKeyName))
}

// CheckComplete refuses to lose what before has unless the file says where it ends: one that was
// cut short, or is half written, would do the same. One that is the beginning of what it was may
// change nothing but the log level, since the last lines of an element may be what it lacks.
func (c *Config) CheckComplete(before *Config) error {
	if endOfDocument.Match(c.Sources.text) {
		return nil
	}
	after := before.WithLive(c)
	lost := Lost(before, after)
	if hasOpenEnd(c.Sources.text) && !hasOpenEnd(before.Sources.text) {
		lost = append(lost, "its last line has no end")
	}
	isBeginning := len(c.Sources.text) < len(before.Sources.text) && bytes.HasPrefix(before.Sources.text, c.Sources.text)
	if len(lost) == 0 && isBeginning {
		after.Log.Level = before.Log.Level
		lost = Changes(before, after)
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%s may be cut short: %s; if it is complete, end it with a line of three dots (...), or restart", c.Sources.file, strings.Join(lost, ", "))
}

// endOfDocument is how a YAML document ends that says so. A file that was cut short does not.
var endOfDocument = regexp.MustCompile(`\n\.\.\.\s*$`)

func hasOpenEnd(text []byte) bool { return len(text) > 0 && text[len(text)-1] != '\n' }

func entityName(e Entity) string   { return e.Name() }
func sinkName(a Alert) string      { return a.Name }
func endpointKeyName(k Key) string { return k.Name }

// elements says which elements of a list are new, others or gone, by name. No value is shown: there are secrets among them.
func elements[T any](key string, a, b []T, name func(T) string) (all []string) {
	for _, after := range b {
		i := slices.IndexFunc(a, func(before T) bool { return strings.EqualFold(name(before), name(after)) })
		switch {
		case i < 0:
			all = append(all, fmt.Sprintf("%s: %s is new", key, name(after)))
		case !reflect.DeepEqual(a[i], after):
			all = append(all, fmt.Sprintf("%s: %s has changed", key, name(after)))
		}
	}
	return append(all, gone(key, a, b, name)...)
}

// gone is the part of elements about those that b has not.
func gone[T any](key string, a, b []T, name func(T) string) (all []string) {
	for _, before := range a {
		if !slices.ContainsFunc(b, func(after T) bool { return strings.EqualFold(name(before), name(after)) }) {
			all = append(all, fmt.Sprintf("%s: %s is gone", key, name(before)))
		}
	}
	return all
}
