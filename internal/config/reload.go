// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"overdue/internal/servicebus/namespace"
)

// live are the settings that a running process takes up; all others need a restart. A list counts with what stands in it.
var live = []liveSetting{
	{
		paths:  []string{"namespace", "namespaceFile"},
		take:   func(c, next *Config) { c.Namespace, c.NamespaceFile = next.Namespace, next.NamespaceFile },
		fits:   sameNamespace,
		effect: "at once; another namespace at start",
	},
	{
		paths: []string{"redis", "redisFile", "redisAuthorityFile"},
		take: func(c, next *Config) {
			c.Redis, c.RedisFile, c.RedisAuthorityFile = next.Redis, next.RedisFile, next.RedisAuthorityFile
			c.RedisAddress, c.RedisRoots, c.RedisAuthority = next.RedisAddress, next.RedisRoots, next.RedisAuthority
		},
		fits:   func(c, next *Config) bool { return c.RedisAddress.IsServerOf(next.RedisAddress) },
		effect: "at once; another server, or other credentials of Sentinel, at start",
	},
	{
		paths: []string{"listen.keys"},
		take:  func(c, next *Config) { c.Listen.Keys = next.Listen.Keys },
		// Whether an endpoint asks for keys is decided when it opens, and must not change by the way.
		fits: func(c, next *Config) bool { return (len(c.Listen.Keys) == 0) == (len(next.Listen.Keys) == 0) },
	},
	{
		paths: []string{"broker.keys"},
		take:  func(c, next *Config) { c.Broker.Keys = next.Broker.Keys },
		fits:  func(c, next *Config) bool { return (len(c.Broker.Keys) == 0) == (len(next.Broker.Keys) == 0) },
	},
	{
		paths: []string{"broker.emulatorConfig", "broker.queues", "broker.topics"},
		take: func(c, next *Config) {
			c.Broker.EmulatorConfig, c.Broker.emulator = next.Broker.EmulatorConfig, next.Broker.emulator
			c.Broker.Queues, c.Broker.Topics = next.Broker.Queues, next.Broker.Topics
		},
		effect: "for new ones",
	},
	{
		paths: []string{"monitor.deadline", "monitor.entities"},
		take:  func(c, next *Config) { c.Monitor = next.Monitor },
	},
	{
		paths: []string{"alerts"},
		take:  func(c, next *Config) { c.Alerts = next.Alerts },
	},
	{
		paths: []string{"dashboard.token", "dashboard.tokenFile"},
		take: func(c, next *Config) {
			c.Dashboard.Token, c.Dashboard.TokenFile = next.Dashboard.Token, next.Dashboard.TokenFile
		},
		fits:   func(c, next *Config) bool { return (c.Dashboard.Token == "") == (next.Dashboard.Token == "") },
		effect: "at once; the first one, or none, at start",
	},
	{
		paths: []string{"dashboard.userHeader"},
		take:  func(c, next *Config) { c.Dashboard.UserHeader = next.Dashboard.UserHeader },
	},
	{
		paths: []string{"log.level"},
		take:  func(c, next *Config) { c.Log.Level = next.Log.Level },
	},
}

// A liveSetting is settings that are taken up together.
type liveSetting struct {
	paths  []string
	take   func(c, next *Config)
	fits   func(c, next *Config) bool // whether a running process can; nil: always
	effect string                     // for the reference; "" = at once
}

// sameNamespace reports whether nothing but the credentials of a namespace differs. Both have been
// checked.
func sameNamespace(c, next *Config) bool {
	a, err := namespace.Parse(c.Namespace)
	b, err2 := namespace.Parse(next.Namespace)
	if err != nil || err2 != nil { // of the embedded broker
		return c.Namespace == next.Namespace
	}
	return strings.EqualFold(a.Host, b.Host) && a.DialAddress == b.DialAddress && a.Plain == b.Plain
}

// takesEffect says when a changed setting of the table does, for the reference.
func takesEffect(path string) string {
	for _, l := range live {
		for _, p := range l.paths {
			if path == p || strings.HasPrefix(path, p+"[]") {
				return cmp.Or(l.effect, "at once")
			}
		}
	}
	return "at start"
}

// WithLive is c with what is live of next. The settings in which it differs from next need a restart.
func (c *Config) WithLive(next *Config) *Config {
	all := *c
	all.Sources = c.Sources.clone()
	all.Sources.text = next.Sources.text
	for _, l := range live {
		if l.fits != nil && !l.fits(c, next) {
			continue
		}
		l.take(&all, next)
		for _, path := range l.paths {
			all.Sources.Keep(path, next.Sources)
		}
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
	if a.Namespace != b.Namespace {
		all = append(all, "namespace has other credentials")
	}
	if a.Redis != b.Redis || !a.RedisRoots.Equal(b.RedisRoots) {
		all = append(all, "redis has other credentials")
	}
	if a.Dashboard.Token != b.Dashboard.Token {
		all = append(all, "dashboard.token has changed")
	}
	if a.Dashboard.UserHeader != b.Dashboard.UserHeader {
		all = append(all, fmt.Sprintf("dashboard.userHeader is %q, was %q", b.Dashboard.UserHeader, a.Dashboard.UserHeader))
	}
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
	all = append(all, elements("broker.keys", a.Broker.Keys, b.Broker.Keys, endpointKeyName)...)
	return append(all, elements("listen.keys", a.Listen.Keys, b.Listen.Keys, endpointKeyName)...)
}

// Lost names the sinks, entities and keys that a has and b has not.
func Lost(a, b *Config) []string {
	return slices.Concat(gone("monitor.entities", a.Monitor.Entities, b.Monitor.Entities, entityName),
		gone("alerts", a.Alerts, b.Alerts, sinkName),
		gone("broker.keys", a.Broker.Keys, b.Broker.Keys, endpointKeyName), gone("listen.keys", a.Listen.Keys, b.Listen.Keys, endpointKeyName))
}

// CheckComplete refuses to lose what before has unless the file says where it ends: one that was
// cut short, or is half written, would do the same. One that is the beginning of what it was may
// change nothing but the log level, since the last lines of an element may be what it lacks.
func (c *Config) CheckComplete(before *Config) error {
	if endOfDocument.Match(c.Sources.text) {
		return nil
	}
	after := before.WithLive(c)
	lost := Lost(before, c)
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
