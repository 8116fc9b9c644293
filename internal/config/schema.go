// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"strings"
	"time"

	"overdue/internal/servicebus/duration"
	"overdue/internal/version"
)

// A schema is a JSON schema, or a part of one.
type schema map[string]any

// Forms of values that are more than a type. Only the program reports a value that is out of
// bounds.
const (
	durationPattern = `^(-?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|-?P([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?)$`
	sizePattern     = `^[0-9]+ *(KiB|MiB|B)?$`
	addressPattern  = `:[0-9]+$`
)

// Schema is made from the table.
func Schema() schema {
	root := sectionSchema("")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Overdue configuration"
	return root
}

// sectionSchema is that of a mapping. path is empty or ends in a dot.
func sectionSchema(path string) schema {
	properties := schema{}
	required := []string{}
	for _, key := range children(path) {
		s := byPath[path+key]
		if s == nil {
			properties[key] = sectionSchema(path + key + ".")
			continue
		}
		properties[key] = s.schema()
		if s.need {
			required = append(required, key)
		}
	}
	// A key without a value counts as not given.
	m := schema{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		m["required"] = required
	}
	return m
}

// schema is that of one setting.
func (s *Setting) schema() schema {
	text := []string{"string", "number", "boolean", "null"} // whatever YAML takes it for, it is read as text
	var m schema
	switch s.Kind {
	case kindList:
		element := sectionSchema(s.Path + "[].")
		element["type"] = "object"
		if s.mayBeEmpty() {
			element["type"] = []string{"object", "null"}
		}
		m = schema{"type": []string{"array", "null"}, "items": element}
	case kindMap, kindTexts:
		m = schema{"type": []string{"object", "null"}, "additionalProperties": schema{"type": text}}
	case kindStrings, kindMailboxes, kindEndpoints:
		items := schema{"type": text}
		if len(s.Choices) > 0 {
			items = schema{"enum": s.Choices}
		}
		m = schema{"type": append([]string{"array"}, text...), "items": items}
	case kindDurations:
		m = schema{"type": []string{"array", "string", "null"}, "items": schema{"type": "string", "pattern": durationPattern}}
	case KindBool:
		m = schema{"enum": []any{true, false, "true", "false", nil}}
	case KindChoice:
		choices := []any{}
		for _, c := range s.Choices {
			choices = append(choices, c)
		}
		m = schema{"enum": append(choices, nil)}
	case kindCount:
		m = schema{"type": []string{"integer", "string", "null"}, "pattern": `^-?[0-9]+$`}
		if s.max != 0 {
			m["minimum"], m["maximum"] = s.min, s.max
		}
	case kindSize:
		m = schema{"type": []string{"integer", "string", "null"}, "pattern": sizePattern}
		if s.max != 0 {
			m["minimum"], m["maximum"] = s.min, s.max
		}
	case kindDuration:
		m = schema{"type": []string{"string", "integer", "null"}, "pattern": durationPattern, "minimum": 0, "maximum": 0}
	case kindAddress, kindEndpoint:
		m = schema{"type": []string{"string", "null"}, "pattern": addressPattern}
		if s.Default == "" {
			m["pattern"] = "^$|" + addressPattern
		}
	case kindURL:
		m = schema{"type": []string{"string", "null"}, "pattern": "^$|^https?://"}
	case kindEntity:
		m = schema{"type": text, "maxLength": 260}
	default:
		m = schema{"type": text}
	}
	m["description"] = s.described()
	if s.Default != "" && !s.Kind.several() {
		m["default"] = s.standard()
		if d, ok := m["default"].(time.Duration); ok {
			m["default"] = d.String()
		}
	}
	return m
}

// mayBeEmpty reports whether an element of the list needs nothing.
func (s *Setting) mayBeEmpty() bool {
	for _, o := range Settings {
		if key, ok := strings.CutPrefix(o.Path, s.Path+"[]."); ok && o.need && !strings.Contains(key, "[].") {
			return false
		}
	}
	return true
}

// described is the help, with what an editor does not see elsewhere.
func (s *Setting) described() string {
	text := s.Help
	if (s.Kind == kindDuration || s.Kind == kindDurations) && s.max != 0 && s.max != math.MaxInt64 {
		text += " From " + duration.Format(time.Duration(s.min)) + " to " + duration.Format(time.Duration(s.max)) + "."
	}
	if env := s.Env(); env != "" {
		text += " Variable: " + env + "."
	}
	return version.Doc(text)
}
