// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Sources lists where the configuration came from, the strongest last: files by name, then how many
// settings the environment and the flags gave.
func (c *Config) Sources() string {
	files, variables, flags := map[string]bool{}, 0, 0
	for key, place := range c.origin {
		switch {
		case place == key || strings.HasPrefix(place, "--"): // a setting without a flag of its own is named by its key
			flags++
		case strings.HasPrefix(place, "OVERDUE_"):
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

// cutLast is strings.Cut around the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// MisspeltVariables are variables whose names are close to that of a setting, and are none. Others are ignored: in a
// cluster, a service of the name overdue brings OVERDUE_PORT and others like it.
func MisspeltVariables(environ []string) (lines []string) {
	known := []string{"OVERDUE_CONFIG", "OVERDUE_SEED"}
	for _, s := range Settings {
		if name := s.Env(); name != "" {
			known = append(known, name)
		}
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "OVERDUE_") || slices.Contains(known, name) {
			continue
		}
		if near := Nearest(name, known); near != "" && distance(name, near) <= 3 {
			lines = append(lines, fmt.Sprintf("%s is no setting, and has no effect; did you mean %s?", name, near))
		}
	}
	slices.Sort(lines)
	return lines
}
