// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/duration"
)

// A field is one element of the description of a T. The order of a table of
// fields is the order of the elements on the wire.
type field[T any] struct {
	name  string
	since string // first api-version that has it; "" for all
	write func(writer, *T)
	read  func(*node, *T) error // nil: the service says it, clients cannot set it
	copy  func(to, from *T)     // sets it like in from; nil where read is
}

// text is a field that is shown as what show returns, and not at all where that
// is "".
func text[T any](name string, show func(*T) string) field[T] {
	return field[T]{name: name, write: func(w writer, v *T) {
		if s := show(v); s != "" {
			w.text(name, s)
		}
	}}
}

func copies[T, V any](at func(*T) *V) func(to, from *T) {
	return func(to, from *T) { *at(to) = *at(from) }
}

func always[T any](name, value string) field[T] {
	return text(name, func(*T) string { return value })
}

func boolean[T any](name string, at func(*T) *bool) field[T] {
	f := text(name, func(v *T) string { return strconv.FormatBool(*at(v)) })
	f.copy = copies(at)
	f.read = func(n *node, v *T) error {
		b, err := n.boolean()
		if err == nil {
			*at(v) = b
		}
		return err
	}
	return f
}

// inverse is a boolean that the broker keeps as its opposite.
func inverse[T any](name string, at func(*T) *bool) field[T] {
	f := text(name, func(v *T) string { return strconv.FormatBool(!*at(v)) })
	f.copy = copies(at)
	f.read = func(n *node, v *T) error {
		b, err := n.boolean()
		if err == nil {
			*at(v) = !b
		}
		return err
	}
	return f
}

// whole is a number; show and set translate it for the wire.
func whole[T any](name string, low, high, step int64, show func(*T) int64, set func(*T, int64)) field[T] {
	f := text(name, func(v *T) string { return strconv.FormatInt(show(v), 10) })
	f.copy = func(to, from *T) { set(to, show(from)) }
	f.read = func(n *node, v *T) error {
		i, err := strconv.ParseInt(n.value(), 10, 64)
		switch {
		case err != nil:
			return n.invalid("it is no number")
		case i == show(v) && i != 0: // as it stands, whatever it is; 0 is what is yet to be filled in
			return nil
		case i < low || i > high:
			return n.invalid(fmt.Sprintf("it has to be between %d and %d", low, high))
		case i%step != 0:
			return n.invalid(fmt.Sprintf("it has to be a multiple of %d", step))
		}
		set(v, i)
		return nil
	}
	return f
}

// span is a span of time within bounds.
func span[T any](name string, low, high time.Duration, at func(*T) *time.Duration) field[T] {
	f := text(name, func(v *T) string { return duration.FormatISO8601(*at(v)) })
	f.copy = copies(at)
	f.read = func(n *node, v *T) error {
		d, ok := duration.ParseISO8601(n.value())
		switch {
		case !ok:
			return n.invalid("it is no ISO 8601 duration")
		case d == *at(v) && d != 0:
			return nil
		case d < low || d > high:
			return n.invalid(fmt.Sprintf("it has to be between %s and %s", duration.FormatISO8601(low), duration.FormatISO8601(high)))
		}
		*at(v) = d
		return nil
	}
	return f
}

// limit is a span of time from low on that may be forever, which is 0 here.
func limit[T any](name string, low time.Duration, at func(*T) *time.Duration) field[T] {
	f := span(name, low, math.MaxInt64, at)
	f.write = func(w writer, v *T) {
		if d := *at(v); d != 0 {
			w.text(name, duration.FormatISO8601(d))
		} else {
			w.text(name, duration.Forever)
		}
	}
	finite := f.read
	f.read = func(n *node, v *T) error {
		if d, ok := duration.ParseISO8601(n.value()); ok && d == math.MaxInt64 {
			*at(v) = 0
			return nil
		} else if ok && d == 0 {
			return n.invalid("it has to be longer than nothing") // 0 would mean forever to the broker
		}
		return finite(n, v)
	}
	return f
}

// words is text that a client may set; it is absent where it is "".
func words[T any](name string, most int, at func(*T) *string) field[T] {
	f := text(name, func(v *T) string { return *at(v) })
	f.copy = copies(at)
	f.read = func(n *node, v *T) error {
		s := string(n.text)
		if utf8.RuneCountInString(s) > most {
			return n.invalid(fmt.Sprintf("it is longer than %d characters", most))
		}
		*at(v) = s
		return nil
	}
	return f
}

// destination is the path or the URL of what an entity forwards to. Scheme and
// host of a URL come back in lower case, as JavaScript's live tests compare them.
func destination[T any](name string, at func(*T) *string) field[T] {
	f := words(name, maxForward, at)
	asStated := f.read
	f.read = func(n *node, v *T) error {
		if err := asStated(n, v); err != nil {
			return err
		}
		if scheme, rest, isURL := strings.Cut(*at(v), "://"); isURL {
			host, path, hasPath := strings.Cut(rest, "/")
			*at(v) = strings.ToLower(scheme + "://" + host)
			if hasPath {
				*at(v) += "/" + path
			}
		}
		return nil
	}
	return f
}

// statuses are in the order of broker.Status.
var statuses = [...]string{
	broker.Active: "Active", broker.Disabled: "Disabled",
	broker.SendDisabled: "SendDisabled", broker.ReceiveDisabled: "ReceiveDisabled",
}

func status[T any](at func(*T) *broker.Status) field[T] {
	f := text("Status", func(v *T) string { return statuses[*at(v)] })
	f.copy = copies(at)
	f.read = func(n *node, v *T) error {
		i := slices.Index(statuses[:], n.value())
		if i < 0 {
			return n.invalid("it is none of " + strings.Join(statuses[:], ", "))
		}
		*at(v) = broker.Status(i)
		return nil
	}
	return f
}

// instants are when an entity was made, changed and used.
func instants[T any](created, updated, accessed func(*T) time.Time) []field[T] {
	return []field[T]{
		text("CreatedAt", func(v *T) string { return formatTime(created(v)) }),
		text("UpdatedAt", func(v *T) string { return formatTime(updated(v)) }),
		text("AccessedAt", func(v *T) string { return formatTime(accessed(v)) }),
	}
}

// countDetails has a namespace of its own, with a prefix. What is deferred counts
// as active.
func countDetails[T any](counts func(*T) queue.Counts) field[T] {
	return field[T]{name: "CountDetails", write: func(w writer, v *T) {
		c := counts(v)
		w.open("CountDetails", "xmlns:"+w.counts, nsCounts)
		w.text(w.counts+":ActiveMessageCount", strconv.Itoa(c.Active+c.Deferred))
		w.text(w.counts+":DeadLetterMessageCount", strconv.Itoa(c.DeadLetter))
		w.text(w.counts+":ScheduledMessageCount", strconv.Itoa(c.Scheduled))
		w.text(w.counts+":TransferMessageCount", "0") // a forward is done before the send is acknowledged
		w.text(w.counts+":TransferDeadLetterMessageCount", "0")
		w.close("CountDetails")
	}}
}

func messageCount(c queue.Counts) string {
	return strconv.Itoa(c.Active + c.Deferred + c.Scheduled + c.DeadLetter)
}

// since marks a field as one that older api-versions do not have.
func since[T any](version string, f field[T]) field[T] {
	f.since = version
	return f
}

// writeFields writes v as an element of that name.
func writeFields[T any](w writer, name, version string, fields []field[T], v *T) {
	w.open(name, "xmlns", nsEntity, "xmlns:i", nsInstance)
	for _, f := range fields {
		if f.since <= version {
			f.write(w, v)
		}
	}
	w.close(name)
}

// readFields sets what the children of d name. What nobody may set, and what
// nobody knows, is passed over, as clients send back what they were given. What
// came later than version a client has not been given: that is refused, as
// Python's test_mgmt_queue_basic_v2017_04 wants it.
func readFields[T any](d *node, version string, fields []field[T], v *T) error {
	for _, f := range fields {
		if f.read == nil {
			continue
		}
		n := d.child(f.name)
		if n == nil {
			continue
		}
		if f.since > version {
			return badRequest("The property %s is not known in the api-version '%.20s'.", f.name, version)
		}
		if err := f.read(n, v); err != nil {
			return err
		}
	}
	return nil
}

// forgetFields makes of what the children of d do not name what it is in a new
// entity. An update is the whole of an entity to the service: a setting that is left
// out gets its default. Source: azure-sdk-for-js issue 9379.
func forgetFields[T any](d *node, fields []field[T], v, fresh *T) {
	for _, f := range fields {
		if f.copy != nil && d.child(f.name) == nil {
			f.copy(v, fresh)
		}
	}
}

// value is the text without white space around it.
func (n *node) value() string { return strings.TrimSpace(string(n.text)) }

func (n *node) boolean() (bool, error) {
	switch strings.ToLower(n.value()) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, n.invalid("it is neither true nor false")
}

func (n *node) invalid(why string) error {
	return badRequest("The value '%.100s' of %s is not valid: %s.", n.text, n.name.Local, why)
}
