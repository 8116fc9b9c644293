// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/url"
	"strings"
	"time"

	"overdue/internal/redisstore"
	"overdue/internal/servicebus/namespace"
)

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
