// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	iso "overdue/internal/servicebus/duration"
)

// A reader collects what is wrong with a file, and what it says in vain.
type reader struct {
	text     []byte
	errs     []error
	warnings []*SyntaxError
	forwards []Forward
}

// line of a value, from 1.
func (r *reader) line(v *hujson.Value) int {
	return 1 + bytes.Count(r.text[:v.StartOffset], []byte("\n"))
}

func (r *reader) failf(v *hujson.Value, format string, args ...any) {
	r.errs = append(r.errs, &SyntaxError{r.line(v), fmt.Sprintf(format, args...)})
}

func (r *reader) warnf(v *hujson.Value, format string, args ...any) {
	r.warnings = append(r.warnings, &SyntaxError{r.line(v), fmt.Sprintf(format, args...)})
}

// An object is one of the file. Keys that nobody has taken of it when it ends have no effect.
type object struct {
	*reader
	at      *hujson.Value // nil: there is none
	what    string        // as errors call it
	name    string        // its Name, where it is of a list
	members []hujson.ObjectMember
	taken   map[string]bool // by names in lower case
}

func (r *reader) object(v *hujson.Value, what string) *object {
	o := &object{reader: r, at: v, what: what, taken: map[string]bool{}}
	if v == nil {
		return o
	}
	if read, is := v.Value.(*hujson.Object); is {
		o.members = read.Members
	} else {
		r.failf(v, "%s is no object", what)
	}
	return o
}

func nameOf(m *hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

// take returns the value of a name, whatever its case; nil for null, and where
// there is none. Where a name is stated twice, the last one counts.
func (o *object) take(name string) *hujson.Value {
	o.taken[strings.ToLower(name)] = true
	var found *hujson.Value
	for i := range o.members {
		if m := &o.members[i]; strings.EqualFold(nameOf(m), name) {
			if found != nil {
				o.warnf(found, "%q is stated again, and the last one counts", name)
			}
			found = &m.Value
		}
	}
	if found != nil && found.Value.Kind() == 'n' {
		return nil
	}
	return found
}

// end notes what was not taken.
func (o *object) end() {
	for i := range o.members {
		if m := &o.members[i]; !o.taken[strings.ToLower(nameOf(m))] {
			o.warnf(&m.Name, "%q is not a property that the emulator knows here", nameOf(m))
		}
	}
}

// child returns an object of this one. Errors name the entity that Properties are
// those of.
func (o *object) child(name string) *object {
	c := o.object(o.take(name), name+" of "+o.what)
	if name == "Properties" {
		c.what = o.what
	}
	return c
}

// list returns the objects of a list, which have names. of says whose they are.
func (o *object) list(name, kind, of string) (all []*object) {
	v := o.take(name)
	if v == nil {
		return nil
	}
	array, is := v.Value.(*hujson.Array)
	if !is {
		o.failf(v, "%s of %s is no list", name, o.what)
		return nil
	}
	seen := map[string]bool{}
	for i := range array.Elements {
		e := o.object(&array.Elements[i], "a "+kind+of)
		switch e.name = e.string("Name"); {
		case e.name == "" && kind != "namespace": // clients do not see that one
			e.failf(e.at, "%s has no Name", e.what)
			e.name = kind
		case seen[strings.ToLower(e.name)]:
			e.failf(e.at, "there is another %s %q%s; names differ by more than upper and lower case", kind, e.name, of)
		}
		seen[strings.ToLower(e.name)] = true
		e.what = fmt.Sprintf("%s %q%s", kind, e.name, of)
		all = append(all, e)
	}
	return all
}

// literal takes a value that has to be of one of these kinds; nil where there is
// none.
func (o *object) literal(name, kinds, need string) (hujson.Literal, *hujson.Value) {
	v := o.take(name)
	if v == nil {
		return nil, nil
	}
	l, is := v.Value.(hujson.Literal)
	if !is || !strings.ContainsRune(kinds, rune(l.Kind())) {
		o.failf(v, "%s of %s has to be %s", name, o.what, need)
		return nil, nil
	}
	return l, v
}

func (o *object) string(name string) string {
	l, _ := o.literal(name, `"`, "a string")
	return l.String()
}

// optional is a string that may be absent.
func (o *object) optional(name string) *string {
	l, v := o.literal(name, `"`, "a string")
	if v == nil {
		return nil
	}
	return new(l.String())
}

func (o *object) bool(name string) bool {
	l, _ := o.literal(name, "tf", "true or false")
	return l.Bool()
}

// count is a number from 1 on.
func (o *object) count(name string, def int) int {
	l, v := o.literal(name, "0", "a number")
	if v == nil {
		return def
	}
	var n int32
	if err := json.Unmarshal(l, &n); err != nil || n < 1 {
		o.failf(v, "%s of %s is %s; give a whole number from 1 to %d", name, o.what, l, math.MaxInt32)
	}
	return int(n)
}

// span is a duration within bounds. The longest there is, and what is longer, is
// forever, which is 0.
func (o *object) span(name string, def, low, high time.Duration) time.Duration {
	l, v := o.literal(name, `"`, "a duration")
	if v == nil {
		return def
	}
	switch d, ok := iso.ParseISO8601(l.String()); {
	case !ok:
		o.failf(v, "%s of %s: %.50q is no duration; write one like PT1M or P1DT12H", name, o.what, l.String())
	case d < low, d > high:
		most := iso.Forever
		if high < math.MaxInt64 {
			most = iso.FormatISO8601(high)
		}
		o.failf(v, "%s of %s is %s; it has to be between %s and %s", name, o.what, l.String(), iso.FormatISO8601(low), most)
	case d < math.MaxInt64:
		return d
	}
	return 0
}

// forward notes where an entity forwards to.
func (o *object) forward(name string) string {
	l, v := o.literal(name, `"`, "a string")
	if l.String() != "" {
		o.forwards = append(o.forwards, Forward{o.line(v), name + " of " + o.what, l.String()})
	}
	return l.String()
}
