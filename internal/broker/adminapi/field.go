// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
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

func boolean[T any](name string, at func(*T) *bool) field[T] { return flag(name, at, true) }

// inverse is a boolean that the broker keeps as its opposite.
func inverse[T any](name string, at func(*T) *bool) field[T] { return flag(name, at, false) }

// flag is true where the broker keeps yes.
func flag[T any](name string, at func(*T) *bool, yes bool) field[T] {
	f := text(name, func(v *T) string { return strconv.FormatBool(*at(v) == yes) })
	f.copy = copies(at)
	f.read = func(n *node, v *T) error {
		b, err := n.boolean()
		if err == nil {
			*at(v) = b == yes
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
			return n.outside(low, high, i)
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
			return n.outside(timeSpan(low), timeSpan(high), timeSpan(d))
		}
		*at(v) = d
		return nil
	}
	return f
}

// limit is a span of time from low on that may be forever, which is 0 here. Of
// centuries the words of the client come back: SDKs have forevers of their own.
func limit[T any](name string, low time.Duration, at func(*T) *time.Duration, stated func(*T) *map[string]string) field[T] {
	f := span(name, low, math.MaxInt64, at)
	f.write = func(w writer, v *T) {
		if d := *at(v); d != 0 {
			w.text(name, duration.FormatISO8601(d))
		} else {
			w.text(name, cmp.Or((*stated(v))[name], duration.Forever))
		}
	}
	finite := f.read
	f.read = func(n *node, v *T) error {
		if d, ok := duration.ParseISO8601(n.value()); ok && d == math.MaxInt64 {
			*at(v) = 0
			keep(stated(v), name, n.value())
			return nil
		} else if ok && d == 0 {
			return n.invalid("it has to be longer than nothing") // 0 would mean forever to the broker
		}
		return finite(n, v)
	}
	return f
}

// storedText is what the service keeps of an element, and the broker does not go by:
// one of these words, the first of them unless a client says otherwise.
func storedText[T any](name string, stated func(*T) *map[string]string, words ...string) field[T] {
	f := text(name, func(v *T) string { return cmp.Or((*stated(v))[name], words[0]) })
	f.read = func(n *node, v *T) error {
		i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, n.value()) })
		if i < 0 {
			return n.invalid("it is none of " + strings.Join(words, ", "))
		}
		keep(stated(v), name, words[i])
		return nil
	}
	return f
}

func keep(stated *map[string]string, name, text string) {
	if *stated == nil {
		*stated = map[string]string{}
	}
	(*stated)[name] = text
}

// supportOrdering is false where there are partitions, unless a client says otherwise: the live
// test TestAdminClient_TopicAndSubscription_Standard of the Go SDK does.
func supportOrdering[T any](partitioned func(*T) *bool, stated func(*T) *map[string]string) field[T] {
	f := storedText("SupportOrdering", stated, "true", "false")
	f.write = func(w writer, v *T) {
		w.text(f.name, cmp.Or((*stated(v))[f.name], strconv.FormatBool(!*partitioned(v))))
	}
	return f
}

// availability says what an entity can be used for. On Standard it is Unknown after
// an update that does not say.
func availability[T any](stated func(*T) *map[string]string) field[T] {
	return storedText("EntityAvailabilityStatus", stated, "Available", "Limited", "Renaming", "Restoring", unknownAvailability)
}

const unknownAvailability = "Unknown"

// statedByUpdate is what an update keeps before its elements have been read.
func (s space) statedByUpdate(d *node) map[string]string {
	if s.tier() == standard && d.child("EntityAvailabilityStatus") == nil {
		return map[string]string{"EntityAvailabilityStatus": unknownAvailability}
	}
	return nil
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

func status[T any](at func(*T) *broker.Status) field[T] {
	f := text("Status", func(v *T) string { return at(v).String() })
	f.copy = copies(at)
	f.read = func(n *node, v *T) error {
		if err := at(v).UnmarshalText([]byte(n.value())); err != nil {
			return n.invalid(reasons(err))
		}
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

// countDetails has a namespace of its own, with a prefix. Deferred messages count as active.
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

// unused is what the service does not say of an entity in the answer that makes it.
var unused = map[string]string{
	"AccessedAt": "", "CountDetails": "", "SubscriptionCount": "", "SqlFilterCount": "", "CorrelationFilterCount": "",
}

// echo is the content of the answer to an update of a queue or topic. It takes the place of the
// values of its fields, because the service repeats the client's values, and no more.
func echo[T any](c *call, d *node, fields []field[T]) map[string]string {
	instead := map[string]string{}
	for _, f := range fields {
		switch n := d.child(f.name); {
		case f.name == "UpdatedAt" && c.version >= "2021-05": // with 2017-04 it is as the client said it
			instead[f.name] = markup(func(w writer) { w.text(f.name, formatTime(time.Time{})) })
		case n == nil:
			instead[f.name] = ""
		case f.read == nil:
			if t, err := time.Parse(time.RFC3339Nano, n.value()); err == nil {
				n.text = []byte(formatTime(t))
			}
			instead[f.name] = markup(n.write)
		}
	}
	return instead
}

func messageCount(c queue.Counts) string {
	return strconv.Itoa(c.Active + c.Deferred + c.Scheduled + c.DeadLetter)
}

// since marks a field as one that older api-versions do not have.
func since[T any](version string, f field[T]) field[T] {
	f.since = version
	return f
}

// writeFields writes v as an element of that name. instead is XML that some
// elements are replaced by, and unapplied is XML behind them.
func writeFields[T any](w writer, name, version string, fields []field[T], v *T, instead, unapplied map[string]string) {
	w.open(name, "xmlns", nsEntity, "xmlns:i", nsInstance)
	w.raw(unapplied[""])
	for _, f := range fields {
		if xml, replaced := instead[f.name]; replaced {
			w.raw(xml)
		} else if f.since <= version {
			f.write(w, v)
		}
		w.raw(unapplied[f.name])
	}
	w.close(name)
}

// readFields sets what the children of d name. Elements that nobody may set, and unknown ones, are
// passed over, as clients send back the elements that they were given. A client has not been given
// elements that came later than its version. Those are refused, as Python's
// test_mgmt_queue_basic_v2017_04 wants it.
func readFields[T any](c *call, d *node, fields []field[T], v *T) error {
	for _, f := range fields {
		if f.read == nil {
			continue
		}
		if behind, late := d.behind[f.name]; late && c.notApplied != nil {
			c.notApplied(Unapplied{Path: c.target.Path, Element: f.name, Behind: behind, Client: c.r.UserAgent()})
		}
		n := d.child(f.name)
		if n == nil {
			continue
		}
		if f.since > c.version {
			return refusef(http.StatusBadRequest, "SubCode=40000. The entity description of type '%s' has unsupported properties for "+
				"api-version '%.20s' in the request. Try including the correct api-version query string in the request.", d.name.Local, c.version)
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
	b, ok := truth(n.value())
	if !ok {
		return false, n.invalid("it is neither true nor false")
	}
	return b.(bool), nil
}

func (n *node) invalid(why string) error {
	return badRequest("The value '%.100s' of %s is not valid: %s.", n.text, n.name.Local, why)
}

// outside refuses a value beyond the bounds, in the words of the service.
func (n *node) outside(low, high, value any) error {
	return n.refuse(fmt.Sprintf("The value supplied must be between %v and %v.", low, high), value)
}

// refuse refuses a value in the words of the service, which have no SubCode for
// subscriptions.
func (n *node) refuse(why string, value any) error {
	return refusef(http.StatusBadRequest, "%s%s\r\nParameter name: %s\r\nActual value was %v.", n.parent.subCode(), why, n.name.Local, value)
}

func (n *node) subCode() string {
	if n.name.Local == "SubscriptionDescription" {
		return ""
	}
	return "SubCode=40000. "
}
