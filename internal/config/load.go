// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
)

// Error is a mistake in the configuration or on the command line: exit code 2.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

var byPath = func() map[string]*Setting {
	m := map[string]*Setting{}
	for _, s := range Settings {
		m[s.Path] = s
	}
	return m
}()

// SettingAt is the row of a path, nil when there is none.
func SettingAt(path string) *Setting { return byPath[path] }

// standard is the default as a value. The table's defaults parse: a test sees to it.
func (s *Setting) standard() any {
	switch s.Kind {
	case kindList:
		return []any{}
	case kindMap, kindTexts:
		return map[string]any{}
	}
	if s.Default == "" {
		if s.Kind.several() {
			return []string{}
		}
		return ""
	}
	v, err := s.Parse(s.Default)
	if err != nil {
		panic(fmt.Sprintf("default of %s: %v", s.Path, err))
	}
	return v
}

// children are the keys that may stand under path, which is empty or ends in a dot.
func children(path string) []string {
	var keys []string
	for _, s := range Settings {
		rest, ok := strings.CutPrefix(s.Path, path)
		if !ok {
			continue
		}
		key, _, _ := strings.Cut(rest, ".")
		if key = strings.TrimSuffix(key, "[]"); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// put and has reach into nested maps by a dotted key.
func put(m map[string]any, key string, v any) {
	head, rest, nested := strings.Cut(key, ".")
	if !nested {
		m[head] = v
		return
	}
	inner, ok := m[head].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[head] = inner
	}
	put(inner, rest, v)
}

func has(m map[string]any, key string) bool {
	head, rest, nested := strings.Cut(key, ".")
	if !nested {
		_, ok := m[head]
		return ok
	}
	inner, ok := m[head].(map[string]any)
	return ok && has(inner, rest)
}

// unattendedVariable is set in the image and in the unit of systemd.
const unattendedVariable = "OVERDUE_UNATTENDED"

// A Preset is a default of one command, in place of that of the table. Everything that the user
// says of the setting is stronger.
type Preset struct {
	Path, Text string
	Variable   string // from which the command has it, for errors; "" = none
}

// Load merges the sources, the strongest last: defaults, presets, file, environment,
// flags (by key). Its errors are of type *Error.
func Load(file string, getenv func(string) string, flags map[string]string, presets ...Preset) (*Config, error) {
	preset := newLayer(nil)
	for _, p := range presets {
		preset.preset(p)
	}
	layers := []*layer{defaults(file == "", getenv(unattendedVariable) != ""), preset}
	if file != "" {
		l, err := readFile(file)
		if err != nil {
			return nil, &Error{err}
		}
		layers = append(layers, l)
	}
	env, flag := newLayer(nil), newLayer(nil)
	for _, s := range Settings {
		if s.element() {
			continue
		}
		if text := getenv(s.Env()); text != "" {
			env.scalar(s, s.Env(), text)
		}
		if text, ok := flags[s.Path]; ok {
			flag.scalar(s, s.flagPlace(), text)
		}
	}
	if err := errors.Join(slices.Concat(preset.errs, env.errs, flag.errs)...); err != nil {
		return nil, &Error{err}
	}
	c, err := merge(append(layers, env, flag))
	if err != nil {
		return nil, &Error{err}
	}
	c.Sources.file = file
	c.StateDirectory, _, _ = strings.Cut(getenv("STATE_DIRECTORY"), ":")
	if err := c.complete(); err != nil {
		return nil, &Error{err}
	}
	return c, nil
}

// defaults is the layer under everything. Somebody without a file has no queues either, so the
// embedded broker makes them on demand then. Where nobody reads the banner, that broker has to be
// asked for.
func defaults(noFile, unattended bool) *layer {
	l := newLayer(nil)
	for _, s := range Settings {
		if !s.element() {
			put(l.values, s.Path, s.standard())
		}
	}
	put(l.values, "broker.enabled", !unattended)
	put(l.values, "broker.autoCreate", noFile)
	return l
}

// preset takes a default of a command.
func (l *layer) preset(p Preset) {
	l.scalar(byPath[p.Path], p.Variable, p.Text)
	if p.Variable == "" { // nobody gave it
		delete(l.origin, p.Path)
	}
}

// scalar takes a value from a variable or a flag. That of a list is written in YAML.
func (l *layer) scalar(s *Setting, place, text string) {
	l.place = func(int) string { return place }
	if s.Kind == kindList {
		root, err := parseYAML([]byte(text))
		if err != nil {
			l.fail(0, "%w", err)
			return
		}
		if root == nil {
			return
		}
		if list, ok := l.list(root, s.Path, s.Path); ok {
			put(l.values, s.Path, list)
			l.origin[s.Path] = place
		}
		return
	}
	v, err := s.Parse(text)
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", keyAt(place, s.Path), err))
		return
	}
	put(l.values, s.Path, v)
	l.origin[s.Path] = place
}

// merge lays the layers over each other, the strongest last.
func merge(layers []*layer) (*Config, error) {
	c := &Config{Sources: Sources{raw: map[string]any{}, origin: map[string]string{}, blank: map[string]bool{}}}
	s := &c.Sources
	for _, l := range layers {
		overlay(s.raw, l.values)
		maps.Copy(s.origin, l.origin)
		maps.Copy(s.blank, l.blank)
		s.text = append(s.text, l.text...) // one layer has one
	}
	// Values have the types of the fields already, but for durations in a list, which are texts.
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: c, WeaklyTypedInput: true, DecodeHook: mapstructure.StringToTimeDurationHookFunc(),
	})
	if err == nil {
		err = d.Decode(s.raw)
	}
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return c, nil
}

// overlay copies the values of from into m. Sections are joined key by key. Lists are replaced: a list in a
// variable is the whole list.
func overlay(m, from map[string]any) {
	for key, v := range from {
		section, isSection := v.(map[string]any)
		below, there := m[key].(map[string]any)
		if isSection && there {
			overlay(below, section)
		} else {
			m[key] = cloned(v)
		}
	}
}

// cloned is a copy of a value that shares no map and no list with it.
func cloned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, inner := range v {
			m[key] = cloned(inner)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, inner := range v {
			list[i] = cloned(inner)
		}
		return list
	case []string:
		return slices.Clone(v)
	}
	return v
}
