// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"text/template"
	"text/template/parse"
	"time"
)

// methods are those that a template may call, as functions of their receiver.
var methods = map[reflect.Type]map[string]any{
	reflect.TypeFor[Page]():  {"Where": Page.Where, "Title": Page.Title, "Text": Page.Text},
	reflect.TypeFor[Event](): {"MarshalJSON": Event.MarshalJSON},
	reflect.TypeFor[EventData](): {
		"Lag": func(d EventData) time.Duration { return d.Lag() },
	},
	reflect.TypeFor[time.Time](): {
		"Add": time.Time.Add, "AddDate": time.Time.AddDate, "After": time.Time.After, "Before": time.Time.Before, "Compare": time.Time.Compare,
		"Day": time.Time.Day, "Equal": time.Time.Equal, "Format": time.Time.Format, "Hour": time.Time.Hour, "IsZero": time.Time.IsZero,
		"Local": time.Time.Local, "Minute": time.Time.Minute, "Month": time.Time.Month, "Nanosecond": time.Time.Nanosecond,
		"Round": time.Time.Round, "Second": time.Time.Second, "String": time.Time.String, "Sub": time.Time.Sub, "Truncate": time.Time.Truncate,
		"UTC": time.Time.UTC, "Unix": time.Time.Unix, "UnixMicro": time.Time.UnixMicro, "UnixMilli": time.Time.UnixMilli,
		"UnixNano": time.Time.UnixNano, "Weekday": time.Time.Weekday, "Year": time.Time.Year, "YearDay": time.Time.YearDay,
	},
	reflect.TypeFor[time.Duration](): {
		"Abs": time.Duration.Abs, "Hours": time.Duration.Hours, "Microseconds": time.Duration.Microseconds,
		"Milliseconds": time.Duration.Milliseconds, "Minutes": time.Duration.Minutes, "Nanoseconds": time.Duration.Nanoseconds,
		"Round": time.Duration.Round, "Seconds": time.Duration.Seconds, "String": time.Duration.String, "Truncate": time.Duration.Truncate,
	},
	reflect.TypeFor[time.Month]():   {"String": time.Month.String},
	reflect.TypeFor[time.Weekday](): {"String": time.Weekday.String},
}

// functions are those of Go templates, without call: there is nothing to call. And and or are in [walk.function].
var functions = map[string]any{
	"eq": equalAny,
	"ge": func(a, b reflect.Value) (bool, error) { c, err := compare(a, b); return c >= 0, err },
	"gt": func(a, b reflect.Value) (bool, error) { c, err := compare(a, b); return c > 0, err },
	"le": func(a, b reflect.Value) (bool, error) { c, err := compare(a, b); return c <= 0, err },
	"lt": func(a, b reflect.Value) (bool, error) { c, err := compare(a, b); return c < 0, err },
	"ne": func(a, b reflect.Value) (bool, error) { same, err := equal(a, b); return !same, err },

	"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	"print": fmt.Sprint, "printf": fmt.Sprintf, "println": fmt.Sprintln,

	"index": index, "len": length, "slice": slice,
	"not": func(v reflect.Value) bool { return !truth(v) },
}

func functionNames() map[string]any {
	names := map[string]any{"and": truth, "or": truth}
	for name, f := range functions {
		names[name] = f
	}
	return names
}

// function is the value of a function by its name; and and or look at no more than they need.
func (w *walk) function(name string, dot reflect.Value, rest []parse.Node, last []reflect.Value) reflect.Value {
	args := make([]reflect.Value, 0, len(rest)+len(last))
	if name == "and" || name == "or" {
		var v reflect.Value
		if len(rest)+len(last) == 0 {
			w.fail("%s: %w", name, errArguments)
		}
		for _, n := range rest {
			if v = w.value(dot, n); truth(v) == (name == "or") {
				return v
			}
		}
		if len(last) > 0 {
			v = last[0]
		}
		return v
	}
	for _, n := range rest {
		args = append(args, w.value(dot, n))
	}
	out, err := invoke(reflect.ValueOf(functions[name]), append(args, last...))
	if err != nil {
		w.fail("%s: %w", name, err)
	}
	if out.Kind() == reflect.String {
		if out.Len() > maxSaid {
			w.fail("%s makes more than %d bytes", name, maxSaid)
		}
		w.steps += out.Len() / 64 // long texts take as long as many steps
	}
	return out
}

var (
	valueType = reflect.TypeFor[reflect.Value]()
	errorType = reflect.TypeFor[error]()
)

// invoke calls f, which returns a value, or one and an error.
func invoke(f reflect.Value, args []reflect.Value) (reflect.Value, error) {
	t := f.Type()
	if n := t.NumIn(); len(args) < n && (!t.IsVariadic() || len(args) < n-1) || len(args) > n && !t.IsVariadic() {
		return reflect.Value{}, errArguments
	}
	in := make([]reflect.Value, len(args))
	for i, a := range args {
		want := t.In(min(i, t.NumIn()-1))
		if t.IsVariadic() && i >= t.NumIn()-1 {
			want = want.Elem()
		}
		switch {
		case want == valueType:
			in[i] = reflect.ValueOf(a)
		case !a.IsValid():
			if want.Kind() != reflect.Interface {
				return reflect.Value{}, fmt.Errorf("nil is not a %s", want)
			}
			in[i] = reflect.Zero(want)
		case a.Type().AssignableTo(want):
			in[i] = a
		case a.CanInt() && a.Type() == reflect.TypeFor[int]() && reflect.Zero(want).CanInt():
			in[i] = a.Convert(want)
		default:
			return reflect.Value{}, fmt.Errorf("%s is not a %s", a.Type(), want)
		}
	}
	out := f.Call(in)
	if len(out) == 2 && out[1].Type() == errorType && !out[1].IsNil() {
		return reflect.Value{}, out[1].Interface().(error)
	}
	if out[0].Type() == valueType {
		return out[0].Interface().(reflect.Value), nil
	}
	return out[0], nil
}

// printable is v as fmt prints it in a template.
func printable(v reflect.Value) any {
	if !v.IsValid() {
		return "<no value>"
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "<nil>"
		}
		v = v.Elem()
	}
	return v.Interface()
}

// truth tells whether v is not the zero value of its kind. Structs always are true.
func truth(v reflect.Value) bool {
	switch {
	case !v.IsValid():
		return false
	case v.Kind() == reflect.Struct:
		return true
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map:
		return v.Len() > 0
	}
	return !v.IsZero()
}

func equalAny(a reflect.Value, others ...reflect.Value) (bool, error) {
	if len(others) == 0 {
		return false, errArguments
	}
	for _, b := range others {
		if same, err := equal(a, b); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

func equal(a, b reflect.Value) (bool, error) {
	if c, err := compare(a, b); err == nil {
		return c == 0, nil
	}
	isNil := func(v reflect.Value) bool {
		return !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil()
	}
	switch {
	case !a.IsValid() || !b.IsValid(), isNil(a) || isNil(b):
		return isNil(a) && isNil(b), nil
	case a.Type() != b.Type() || !a.Comparable():
		return false, errors.New("cannot compare " + a.Type().String() + " with " + b.Type().String())
	}
	return a.Interface() == b.Interface(), nil
}

// compare orders numbers and texts.
func compare(a, b reflect.Value) (int, error) {
	switch {
	case !a.IsValid() || !b.IsValid():
		return 0, errors.New("cannot compare nothing")
	case a.Kind() == reflect.String && b.Kind() == reflect.String:
		return cmp.Compare(a.String(), b.String()), nil
	case a.CanFloat() && b.CanFloat():
		return cmp.Compare(a.Float(), b.Float()), nil
	case a.CanInt() && b.CanInt():
		return cmp.Compare(a.Int(), b.Int()), nil
	case a.CanUint() && b.CanUint():
		return cmp.Compare(a.Uint(), b.Uint()), nil
	case a.CanInt() && b.CanUint():
		if a.Int() < 0 {
			return -1, nil
		}
		return cmp.Compare(uint64(a.Int()), b.Uint()), nil
	case a.CanUint() && b.CanInt():
		c, err := compare(b, a)
		return -c, err
	}
	return 0, fmt.Errorf("cannot compare %s with %s", a.Type(), b.Type())
}

func length(v reflect.Value) (int, error) {
	v, _ = indirect(v)
	switch v.Kind() {
	case reflect.String, reflect.Slice, reflect.Array, reflect.Map:
		return v.Len(), nil
	}
	return 0, errors.New("it has no length")
}

// position is an index of a text or a list of n, itself one where there may be one behind the last.
func position(v reflect.Value, n int) (int, error) {
	if !v.IsValid() || !v.CanInt() && !v.CanUint() {
		return 0, errors.New("an index has to be a whole number")
	}
	i := int64(-1)
	if v.CanInt() {
		i = v.Int()
	} else if v.Uint() < uint64(n) {
		i = int64(v.Uint())
	}
	if i < 0 || i >= int64(n) {
		return 0, errors.New("an index is out of range")
	}
	return int(i), nil
}

func index(v reflect.Value, at ...reflect.Value) (reflect.Value, error) {
	for _, key := range at {
		v, _ = indirect(v)
		switch {
		case v.Kind() == reflect.Map:
			if !key.IsValid() || !key.Type().AssignableTo(v.Type().Key()) {
				return v, errors.New("that is not a key of it")
			}
			found := v.MapIndex(key)
			if !found.IsValid() {
				found = reflect.Zero(v.Type().Elem())
			}
			v = found
		case v.Kind() == reflect.Slice || v.Kind() == reflect.Array || v.Kind() == reflect.String:
			i, err := position(key, v.Len())
			if err != nil {
				return v, err
			}
			v = v.Index(i)
		default:
			return v, errors.New("it has no index")
		}
	}
	return v, nil
}

func slice(v reflect.Value, at ...reflect.Value) (reflect.Value, error) {
	v, _ = indirect(v)
	if v.Kind() != reflect.String && v.Kind() != reflect.Slice {
		return v, errors.New("it cannot be sliced")
	}
	if len(at) > 2 {
		return v, errArguments
	}
	ends := [2]int{0, v.Len()}
	for i, p := range at {
		var err error
		if ends[i], err = position(p, v.Len()+1); err != nil {
			return v, err
		}
	}
	if ends[0] > ends[1] {
		return v, errors.New("an index is out of range")
	}
	return v.Slice(ends[0], ends[1]), nil
}
