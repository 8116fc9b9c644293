// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
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
		hint := "docs/reference/configuration.md lists them"
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
