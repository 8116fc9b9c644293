// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"overdue/internal/servicebus/atom"
)

// A filter of a list is one comparison or several with "and" between them: messageCount Gt 0,
// startswith(path, 'queue') eq true. NamespaceManager of the .NET Framework documents it at
// GetQueuesAsync. Words are compared without case.
var comparison = regexp.MustCompile(`(?i)^\s*(?:startswith\(\s*(\w+)\s*,\s*'((?:[^']|'')*)'\s*\)(?:\s+eq\s+(true|false))?` +
	`|(\w+)\s+(eq|ne|gt|ge|lt|le)\s+(?:'((?:[^']|'')*)'|([^\s']+)))\s*(?:$|and\s+)`)

// comparables are the properties that a filter may name: the element that has each, "" for the
// title, and the order of its values.
var comparables = map[string]struct {
	element string
	compare func(value, with string) (int, error)
}{
	"path":         {"", compareNames},
	"name":         {"", compareNames},
	"messagecount": {"MessageCount", compareNumbers},
	"sizeinbytes":  {"SizeInBytes", compareNumbers},
	"createdat":    {"CreatedAt", compareTimes},
	"updatedat":    {"UpdatedAt", compareTimes},
	"modifiedat":   {"UpdatedAt", compareTimes},
	"accessedat":   {"AccessedAt", compareTimes},
}

// filtered returns the entries for which a filter is true, all of them where it is "".
func filtered(entries []entry, filter string) (kept []entry, err error) {
	if strings.TrimSpace(filter) == "" {
		return entries, nil
	}
	for _, e := range entries {
		passes, err := e.passes(filter)
		if err != nil {
			return nil, badRequest("The filter '%.300s' is not valid: %v.", filter, err)
		}
		if passes {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

func (e entry) passes(filter string) (bool, error) {
	d, err := atom.Parse(strings.NewReader(markup(e.content)))
	if err != nil {
		return false, err
	}
	passes := true
	for rest := filter; rest != ""; {
		m := comparison.FindStringSubmatch(rest)
		if m == nil {
			return false, errors.New("it is no list of comparisons with 'and' between them")
		}
		rest = rest[len(m[0]):]
		p, known := comparables[strings.ToLower(m[1]+m[4])]
		if !known {
			return false, errors.New("there is no property '" + m[1] + m[4] + "' to compare")
		}
		value, with := e.title, strings.ReplaceAll(m[2]+m[6], "''", "'")+m[7]
		if p.element != "" {
			value = d.ChildText(p.element)
		}
		if m[1] != "" {
			begins := strings.HasPrefix(strings.ToLower(value), strings.ToLower(with))
			passes = passes && begins != strings.EqualFold(m[3], "false")
			continue
		}
		order, err := p.compare(value, with)
		if err != nil {
			return false, err
		}
		passes = passes && map[string]bool{
			"eq": order == 0, "ne": order != 0, "gt": order > 0, "ge": order >= 0, "lt": order < 0, "le": order <= 0,
		}[strings.ToLower(m[5])]
	}
	return passes, nil
}

func compareNames(value, with string) (int, error) {
	return cmp.Compare(strings.ToLower(value), strings.ToLower(with)), nil
}

func compareNumbers(value, with string) (int, error) {
	a, errA := strconv.ParseFloat(cmp.Or(value, "0"), 64)
	b, errB := strconv.ParseFloat(with, 64)
	return cmp.Compare(a, b), errors.Join(errA, errB)
}

func compareTimes(value, with string) (int, error) {
	a, errA := readTime(value)
	b, errB := readTime(with)
	return a.Compare(b), errors.Join(errA, errB)
}

// readTime reads a time without a zone as UTC. The last form is that of ToString in .NET.
func readTime(text string) (t time.Time, err error) {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateTime, time.DateOnly, "1/2/2006 3:04:05 PM"} {
		if t, err = time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return t, err
}
