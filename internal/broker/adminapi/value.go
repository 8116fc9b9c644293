// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/filter"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/duration"
)

// A list of named values with their types, as parameters of SQL and properties of
// a correlation filter are written:
//
//	<KeyValueOfstringanyType>
//	  <Key>n</Key>
//	  <Value i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">1</Value>
//	</KeyValueOfstringanyType>

// readValues reads such a list, nil where there is none.
func readValues(n *node) (broker.Values, error) {
	if n == nil {
		return nil, nil
	}
	values := broker.Values{}
	for _, pair := range n.children {
		key, value := pair.child("Key"), pair.child("Value")
		isNull := slices.ContainsFunc(pair.children, func(c *node) bool { return c.name.Local == "Value" && c.null() })
		if key == nil || value == nil && !isNull || len(key.text) == 0 {
			return nil, badRequest("%s: every value needs a key, and every key a value.", n.name.Local)
		}
		if value == nil {
			values = append(values, queue.Property{Key: string(key.text)})
			continue
		}
		read, known := valueTypes[value.kind()]
		if !known {
			return nil, badRequest("%s: the type '%.100s' of the value of '%.100s' is not supported.", n.name.Local, value.attribute("type"), key.text)
		}
		v, ok := read(string(value.text))
		if !ok {
			return nil, badRequest("%s: the value '%.100s' of '%.100s' is no %s.", n.name.Local, value.text, key.text, value.kind())
		}
		values = append(values, queue.Property{Key: string(key.text), Value: v})
	}
	return values, nil
}

// valueTypes read values by their types, most of them those of XML Schema.
var valueTypes = map[string]func(string) (any, bool){
	"byte": integer[int8], "short": integer[int16], "int": integer[int32], "long": integer[int64],
	"unsignedByte": integer[uint8], "unsignedShort": integer[uint16], "unsignedInt": integer[uint32], "unsignedLong": unsignedLong,
	"float": func(s string) (any, bool) {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 32)
		return float32(f), err == nil
	},
	"double": func(s string) (any, bool) {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		return f, err == nil
	},
	"decimal":  converted(filter.Decimal),
	"string":   func(s string) (any, bool) { return s, true },
	"boolean":  truth,
	"anyURI":   func(s string) (any, bool) { return amqp.Described{Descriptor: message.TypeURI, Value: s}, true },
	"dateTime": dateTime,
	"base64Binary": func(s string) (any, bool) {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
		return b, err == nil
	},
	"duration": func(s string) (any, bool) { return duration.ParseISO8601(s) },
	"guid":     converted(filter.GUID),
	"char":     char,
}

func integer[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](s string) (any, bool) {
	i, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return T(i), err == nil && int64(T(i)) == i
}

func truth(s string) (any, bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "1":
		return true, true
	case "false", "0":
		return false, true
	}
	return nil, false
}

func unsignedLong(s string) (any, bool) {
	i, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	return i, err == nil
}

// converted reads what filters read of a string.
func converted(kind filter.Kind) func(string) (any, bool) {
	return func(s string) (any, bool) {
		v, ok := filter.StringValue(s).Convert(kind)
		return message.WireValue(v, nil), ok
	}
}

// dateTime without a zone comes back without one: Python's test_mgmt_rule_create compares it with
// what it sent.
func dateTime(s string) (any, bool) {
	s = strings.TrimSpace(s)
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t.UTC(), true
	}
	t, err := time.ParseInLocation(broker.TimeWithoutZone, s, broker.NoZone)
	return t, err == nil
}

// char is the number of a character, as .NET writes it, or the character itself.
func char(s string) (any, bool) {
	if r, size := utf8.DecodeRuneInString(s); size == len(s) && size > 0 {
		return amqp.Char(r), true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return amqp.Char(n), err == nil && utf8.ValidRune(rune(n))
}

// writeValues writes a list under that name, and nothing where there is none. The
// JavaScript SDK wants four letters for the prefix of a type.
func writeValues(w writer, name string, values broker.Values) {
	if values == nil {
		return
	}
	w.open(name)
	for _, v := range values {
		kind, text := typeOf(v.Value)
		namespace := nsSchema
		if kind == "duration" || kind == "guid" || kind == "char" {
			namespace = nsSerialization
		}
		attributes := []string{"i:type", "d6p1:" + kind, "xmlns:d6p1", namespace}
		if v.Value == nil {
			attributes = []string{"i:nil", "true"}
		}
		w.open("KeyValueOfstringanyType")
		w.text("Key", v.Key)
		w.text("Value", text, attributes...)
		w.close("KeyValueOfstringanyType")
	}
	w.close(name)
}

// integerKinds are the types of integers. int is that of the configuration.
var integerKinds = map[reflect.Kind]string{
	reflect.Int8: "byte", reflect.Int16: "short", reflect.Int32: "int", reflect.Int64: "long", reflect.Int: "int",
	reflect.Uint8: "unsignedByte", reflect.Uint16: "unsignedShort", reflect.Uint32: "unsignedInt", reflect.Uint64: "unsignedLong",
}

// typeOf is the inverse of valueTypes, also for what rules that were made over AMQP
// bring.
func typeOf(v any) (kind, text string) {
	as := message.FilterValue(v)
	plain, _ := as.Convert(filter.String)
	switch as.Kind() {
	case filter.Bool:
		return "boolean", strings.ToLower(plain.Text())
	case filter.Int, filter.Uint:
		return integerKinds[reflect.TypeOf(v).Kind()], plain.Text()
	case filter.Decimal:
		return "decimal", plain.Text()
	case filter.Float:
		if _, single := v.(float32); single {
			return "float", formatFloat(as.Float(), 32)
		}
		return "double", formatFloat(as.Float(), 64)
	case filter.GUID:
		return "guid", plain.Text()
	case filter.Time:
		if t, ok := v.(time.Time); ok && t.Location() == broker.NoZone {
			return "dateTime", t.Format(broker.TimeWithoutZone)
		}
		return "dateTime", as.Time().Format(time.RFC3339Nano)
	case filter.Duration:
		return "duration", duration.FormatISO8601(as.Duration())
	}
	switch v := v.(type) {
	case nil:
		return "", ""
	case []byte:
		return "base64Binary", base64.StdEncoding.EncodeToString(v)
	case amqp.Char:
		return "char", strconv.Itoa(int(v))
	case amqp.Described:
		return "anyURI", plain.Text()
	}
	return "string", cmp.Or(plain.Text(), fmt.Sprint(v))
}

func formatFloat(f float64, bits int) string {
	switch {
	case math.IsInf(f, 1):
		return "INF"
	case math.IsInf(f, -1):
		return "-INF"
	}
	return strconv.FormatFloat(f, 'g', -1, bits)
}

// timeSpan is a duration as .NET writes it.
func timeSpan(d time.Duration) string {
	span := filter.DurationValue(d)
	if d == math.MaxInt64 { // forever
		span = filter.TicksValue(math.MaxInt64)
	}
	text, _ := span.Convert(filter.String) // every duration has one
	return text.Text()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// formatTime writes a time as the service does.
func formatTime(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.9999999Z07:00")
}
