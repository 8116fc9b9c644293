// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"overdue/internal/amqp"
)

// Edits are application properties with their new values as text. nil removes a property.
type Edits map[string]*string

// Add notes one edit.
func (e *Edits) Add(name string, value *string) error {
	switch {
	case name == "":
		return fmt.Errorf("a property without a name cannot be edited")
	case lost[name] || strings.HasPrefix(name, "overdue-"):
		return fmt.Errorf("the property %.100q belongs to Overdue or to the broker, and cannot be edited", name)
	}
	if _, again := (*e)[name]; again {
		return fmt.Errorf("the property %.100q is edited twice; keep one", name)
	}
	if *e == nil {
		*e = Edits{}
	}
	(*e)[name] = value
	return nil
}

// EditNames are what is edited, for people. A removed property has a minus before it.
func (c *Copying) EditNames() string {
	var all []string
	if c.Body != nil {
		all = append(all, "the body")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Edits)) {
		if c.Edits[name] == nil {
			name = "-" + name
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

// CheckEdits refuses edits that one of the chosen dead letters does not take, before any is copied.
func (r *Resubmission) CheckEdits(ctx context.Context, chosen map[int64]bool) error {
	if r.Copying.EditNames() == "" || len(chosen) == 0 {
		return nil
	}
	if r.Copying.Body != nil && len(chosen) > 1 {
		return &unfitError{fmt.Errorf("a new body is for one dead letter, and %d were chosen", len(chosen))}
	}
	numbers := slices.Sorted(maps.Keys(chosen))
	var unfit error
	err := Walk(ctx, r.Links, r.Place, numbers[0], func(l *Letter) bool {
		if chosen[l.Number] {
			if _, err := r.Copying.Encode(r.Place, l); err != nil {
				unfit = &unfitError{fmt.Errorf("dead letter %d, %w; nothing was changed", l.Number, err)}
			}
		}
		return unfit == nil && l.Number < numbers[len(numbers)-1]
	})
	return cmp.Or(unfit, err)
}

// An unfitError says why edits are refused.
type unfitError struct{ err error }

func (e *unfitError) Error() string { return e.err.Error() }
func (e *unfitError) Unwrap() error { return e.err }

// append appends the properties that have new values to the pairs of a map, and counts them.
func (e Edits) append(b []byte, l *Letter) (_ []byte, n int, err error) {
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if e[name] == nil {
			continue
		}
		value, err := valueLike(l.Properties[name], *e[name])
		if err != nil {
			return b, n, fmt.Errorf("property %.100q: %w", name, err)
		}
		if b, err = amqp.AppendValue(amqp.AppendString(b, name), value); err != nil {
			return b, n, err
		}
		n++
	}
	return b, n, nil
}

// valueLike reads a value of the type of old. Consumers in typed languages fail on another one, even
// on an integer of another width.
func valueLike(old any, text string) (v any, err error) {
	whole := func(bits int) (n int64) { n, err = strconv.ParseInt(text, 10, bits); return n }
	natural := func(bits int) (n uint64) { n, err = strconv.ParseUint(text, 10, bits); return n }
	switch old.(type) {
	case nil:
		return Typed(text), nil
	case string:
		return text, nil
	case bool:
		v = text == "true"
		if text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
	case int8:
		v = int8(whole(8))
	case int16:
		v = int16(whole(16))
	case int32:
		v = int32(whole(32))
	case int64:
		v = whole(64)
	case uint8:
		v = uint8(natural(8))
	case uint16:
		v = uint16(natural(16))
	case uint32:
		v = uint32(natural(32))
	case uint64:
		v = natural(64)
	case float32:
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		v = float32(f)
	case float64:
		v, err = strconv.ParseFloat(text, 64)
	default:
		return nil, fmt.Errorf("its value is neither text nor a number nor a boolean, and cannot be edited")
	}
	if err != nil {
		return nil, fmt.Errorf("its value is of type %T, and %.100q is none", old, text)
	}
	return v, nil
}

// Typed returns a value with its likely type: 1 and "1" are different for rules and consumers.
func Typed(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if text == "true" || text == "false" {
		return text == "true"
	}
	return text
}
