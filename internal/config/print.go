// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"overdue/internal/redisstore"
	"overdue/internal/servicebus/namespace"
	"overdue/internal/version"
)

// Redacted is the settings in force and where each that is not a default came from.
func (s *Sources) Redacted() map[string]any {
	return map[string]any{"settings": redact(s.raw, ""), "origin": s.origin}
}

// YAML writes the settings in the order of the table, with the origin of each as a comment.
func (s *Sources) YAML(given bool) ([]byte, error) {
	root := printer{s.origin, given}.section(s.raw, "", "")
	if len(root.Content) == 0 {
		return []byte("# Nothing is set; every setting has its default.\n"), nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(root), e.Close()); err != nil {
		return nil, fmt.Errorf("write the settings: %w", err)
	}
	return b.Bytes(), nil
}

// A printer makes YAML of settings, with their origins.
type printer struct {
	origin    map[string]string
	givenOnly bool
}

// section is a mapping. path names it in the table, shown in the configuration: they differ by the index of a list's
// element. Both end in a dot unless they are empty.
func (p printer) section(values map[string]any, path, shown string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range children(path) {
		v, there := values[key]
		if !there || p.givenOnly && !p.givenBelow(shown+key) {
			continue
		}
		name, came := scalarNode(key), p.came(shown+key)
		var node *yaml.Node
		switch v := v.(type) {
		case map[string]any:
			if s := byPath[path+key]; s != nil { // a mapping of the user's own
				node, name.LineComment = scalarNode(redact(v, path+key)), came
			} else if node = p.section(v, path+key+".", shown+key+"."); len(node.Content) == 0 {
				continue
			}
		case []any:
			if node = p.sequence(v, path+key, shown+key); len(node.Content) == 0 {
				node.Style, node.LineComment = yaml.FlowStyle, came
			} else {
				name.LineComment = came
			}
		default:
			node = scalarNode(redact(v, path+key))
			node.LineComment = came
		}
		n.Content = append(n.Content, name, node)
	}
	return n
}

func (p printer) sequence(list []any, path, shown string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i, element := range list {
		if m, ok := element.(map[string]any); ok {
			n.Content = append(n.Content, p.section(m, path+"[].", fmt.Sprintf("%s[%d].", shown, i)))
		}
	}
	return n
}

// givenBelow reports whether somebody has set the key, or one below it.
func (p printer) givenBelow(key string) bool {
	for k := range p.origin {
		if rest, ok := strings.CutPrefix(k, key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// came is where a value came from, as a comment.
func (p printer) came(key string) string {
	if place := p.origin[key]; place != "" {
		return "# " + place
	}
	return "# default"
}

// scalarNode is v as YAML: a single value, or what Go knows how to write.
func scalarNode(v any) *yaml.Node {
	if d, ok := v.(time.Duration); ok {
		v = d.String()
	}
	if v == "" {
		// Not every kind of value may be written as an empty one; a key without a value is one that is not given.
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "(cannot be shown)"}
	}
	if n.Kind == yaml.SequenceNode { // names
		n.Style = yaml.FlowStyle
	}
	return n
}

// redact copies v, the value at path of the table, without what is secret. What the
// table does not know is left out rather than shown.
func redact(v any, path string) any {
	switch v := v.(type) {
	case map[string]any:
		if s := byPath[path]; s != nil && s.Kind.isMap() && !s.secret {
			return v // names of the user's own are not in the table
		}
		m := make(map[string]any, len(v))
		for key, inner := range v {
			p := key
			if path != "" {
				p = path + "." + key
			}
			m[key] = redact(inner, p)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = redact(v[i], path+"[]")
		}
		return list
	}
	s := byPath[path]
	switch {
	case s == nil:
		return "(hidden)"
	case s.secret:
		return hide(s, v)
	case s.Kind == kindDuration:
		if d, ok := v.(time.Duration); ok {
			return d.String()
		}
	}
	return v
}

// hide shows of a secret what helps to recognise it: the host.
func hide(s *Setting, v any) string {
	text, _ := v.(string)
	if text == "" {
		return ""
	}
	if s.Kind == kindURL {
		if u, err := url.Parse(text); err == nil {
			return u.Scheme + "://" + u.Host + "/(hidden)"
		}
	}
	if a, err := redisstore.ParseAddress(text); err == nil {
		return strings.Join(a.Hosts, ",") + " (hidden)"
	}
	if n, err := namespace.Parse(text); err == nil {
		if n.ConnectionString == "" {
			return n.Host
		}
		return "Endpoint=sb://" + n.Host + ";(hidden)"
	}
	return "(hidden)"
}

// cutLast is strings.Cut around the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// notSettings are variables that are read elsewhere: by Load itself, by tests, tools and Compose
// files, which may start the program with their own environment.
var notSettings = []string{"OVERDUE_CONFIG", unattendedVariable, "OVERDUE_BIN", "OVERDUE_IMAGE", "OVERDUE_RELEASE", "OVERDUE_SCENARIOS", "OVERDUE_SEED", "OVERDUE_UPGRADE_FROM"}

// notOfSettings are names that Kubernetes gives every container for a service called overdue or
// overdue-…, and those of tests.
var notOfSettings = regexp.MustCompile(`^OVERDUE_(?:(?:\w+?_)??(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PORT|PROTO|ADDR))?|(PORT))|TEST(?:_\w+)?)$`)

// CheckVariables refuses variables of our prefix that are no settings, as a file's unknown keys
// are refused. The port of a service in Kubernetes is an address, such as tcp://10.0.0.1:5672. A
// bare number is somebody's guess at a setting.
func CheckVariables(environ []string) error {
	var known []string
	for _, s := range Settings {
		if name, ok := strings.CutPrefix(s.Env(), "OVERDUE_"); ok {
			known = append(known, name)
		}
	}
	var errs []error
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		word, ours := strings.CutPrefix(name, "OVERDUE_")
		if !ours || slices.Contains(known, word) || slices.Contains(notSettings, name) {
			continue
		}
		_, number := strconv.ParseUint(value, 10, 64)
		if form := notOfSettings.FindStringSubmatch(name); form != nil && (form[1] == "" || number != nil) {
			continue
		}
		hint := version.Doc("docs/reference/configuration.md") + " lists them"
		if near := Nearest(word, known); near != "" {
			hint = "did you mean OVERDUE_" + near + "?"
		}
		errs = append(errs, fmt.Errorf("%s is not a known variable; %s", Clip(name), hint))
	}
	if len(errs) == 0 {
		return nil
	}
	return &Error{errors.Join(errs...)}
}
