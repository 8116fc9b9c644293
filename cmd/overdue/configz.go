// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"overdue/internal/escape"
	"overdue/internal/redisstore"
)

// configz shows the settings in force and where each that is not a default came from.
func (a *admin) configz(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(cmp.Or(a.current.Load(), a.cfg).shown(), "", "  ")
	if err != nil {
		answer(w, http.StatusInternalServerError, "the configuration cannot be shown: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(escape.JSON(body), '\n')) // an error is the caller's loss only
}

// redact copies v, the value at path of the table, without what is secret. What the
// table does not know is left out rather than shown.
func redact(v any, path string) any {
	switch v := v.(type) {
	case map[string]any:
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
	case s.kind == kindDuration:
		if d, ok := v.(time.Duration); ok {
			return d.String()
		}
	}
	return v
}

// hide shows of a secret what helps to recognise it: the host.
func hide(s *setting, v any) string {
	text, _ := v.(string)
	if text == "" {
		return ""
	}
	if s.kind == kindURL {
		if u, err := url.Parse(text); err == nil {
			return u.Scheme + "://" + u.Host + "/(hidden)"
		}
	}
	if a, err := redisstore.ParseAddress(text); err == nil {
		return strings.Join(a.Hosts, ",") + " (hidden)"
	}
	if n, err := parseNamespace(text); err == nil {
		if n.connectionString == "" {
			return n.host
		}
		return "Endpoint=sb://" + n.host + ";(hidden)"
	}
	return "(hidden)"
}
