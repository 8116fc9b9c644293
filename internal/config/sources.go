// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sources is what files, environment and flags gave, and where: for errors, for /configz, and for a reload.
type Sources struct {
	raw    map[string]any    // what the settings were read into, by key
	origin map[string]string // where each value that is not a default came from
	blank  map[string]bool   // keys that a file has without a value
	file   string            // that --config names; "" = none
	text   []byte            // of the file
}

// clone shares nothing with s that Keep changes.
func (s *Sources) clone() Sources {
	other := *s
	other.raw, other.origin = map[string]any{}, map[string]string{}
	overlay(other.raw, s.raw)
	maps.Copy(other.origin, s.origin)
	return other
}

// String lists where the configuration came from, the strongest last: files by name, then how many
// settings the environment and the flags gave.
func (s *Sources) String() string {
	files, variables, flags := map[string]bool{}, 0, 0
	for key, place := range s.origin {
		switch {
		case isFlag(place, key):
			flags++
		case isVariable(place):
			variables++
		default:
			file, _, _ := cutLast(place, ":")
			files[file] = true
		}
	}
	parts := slices.Sorted(maps.Keys(files))
	if variables > 0 {
		parts = append(parts, fmt.Sprintf("environment (%d)", variables))
	}
	if flags > 0 {
		parts = append(parts, fmt.Sprintf("flags (%d)", flags))
	}
	if len(parts) == 0 {
		return "defaults"
	}
	return strings.Join(parts, ", ")
}

// isFlag reports whether the place of a key is a flag. A setting without a flag of its own is named
// by its key.
func isFlag(place, key string) bool { return place == key || strings.HasPrefix(place, "--") }

// isVariable reports whether a place is an environment variable: that in a file ends with its line.
func isVariable(place string) bool { return !strings.Contains(place, ":") }

// keyAt names a key and its place, of which a flag says both.
func keyAt(place, key string) string {
	if isFlag(place, key) {
		return place
	}
	return place + ": " + key
}

// Reloads reports whether there is anything to reload: what comes from the environment and from flags alone stays.
func (s *Sources) Reloads() bool { return len(s.Files()) > 0 }

// Files are those that a configuration was read from, and those that hold its secrets. Certificates are not among them: the
// endpoints read them again by themselves. Neither are pipes, which were read once.
func (s *Sources) Files() []string {
	var all []string
	if s.file != "" {
		all = append(all, s.file)
	}
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				walk(inner, strings.TrimPrefix(path+"."+key, "."))
			}
		case []any:
			for _, inner := range v {
				walk(inner, path+"[]")
			}
		case string:
			holds := strings.HasSuffix(path, "File") && !strings.Contains(path, ".tls.") || path == "broker.emulatorConfig" && !isContent(v)
			if v != "" && holds {
				all = append(all, v)
			}
		}
	}
	walk(s.raw, "")
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), isDrained)
}

// Keep makes what is shown of a setting, and of where it came from, that of another configuration.
func (s *Sources) Keep(path string, from Sources) {
	put(s.raw, path, valueAt(from.raw, path))
	below := func(key string) bool {
		rest, ok := strings.CutPrefix(key, path)
		return ok && (rest == "" || rest[0] == '[')
	}
	for key := range s.origin {
		if below(key) {
			delete(s.origin, key)
		}
	}
	for key, place := range from.origin {
		if below(key) {
			s.origin[key] = place
		}
	}
}

// aimless reports whether an interval is given without any of the keys that it needs. A file with all keys,
// as of `config print` and `config example`, has them without a value, and the standard interval.
func (s *Sources) aimless(key string, interval time.Duration, needs ...string) bool {
	listed := slices.ContainsFunc(needs, func(need string) bool { return s.blank[need] })
	_, given := s.origin[key]
	return given && (!listed || interval != byPath[key].standard())
}
