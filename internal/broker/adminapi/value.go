// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

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
func readValues(n *node) (map[string]any, error) {
	if n == nil {
		return nil, nil
	}
	var values map[string]any
	for _, pair := range n.children {
		key, value := pair.child("Key"), pair.child("Value")
		if key == nil || value == nil || len(key.text) == 0 {
			return nil, badRequest("%s: every value needs a key, and every key a value.", n.name.Local)
		}
		v, err := value.typed()
		if err != nil {
			return nil, badRequest("%s: the value '%.100s' of '%.100s' is %v.", n.name.Local, value.text, key.text, err)
		}
		if values == nil {
			values = make(map[string]any)
		}
		values[string(key.text)] = v
	}
	return values, nil
}

// A dateTime without a zone is UTC, and comes back without one: Python's
// test_mgmt_rule_create compares it with what it sent.
const withoutZone = "2006-01-02T15:04:05.999999999"

// unsaid is the zone of such a time.
var unsaid = time.FixedZone("unsaid", 0)

// typed is the value of an element whose i:type names a type of XML Schema:
// string, int64, float64, bool, time.Time or time.Duration.
func (n *node) typed() (any, error) {
	kind := n.kind()
	if low, high, ok := integers(kind); ok {
		i, err := strconv.ParseInt(n.value(), 10, 64)
		if err != nil || i < low || i > high {
			return nil, fmt.Errorf("no %s", kind)
		}
		return i, nil
	}
	switch kind {
	case "string", "anyURI", "guid", "char":
		return string(n.text), nil
	case "boolean":
		b, err := n.boolean()
		if err != nil {
			return nil, fmt.Errorf("no boolean")
		}
		return b, nil
	case "double", "float", "decimal":
		f, err := strconv.ParseFloat(n.value(), 64)
		if err != nil {
			return nil, fmt.Errorf("no %s", kind)
		}
		return f, nil
	case "dateTime":
		if t, err := time.Parse(time.RFC3339Nano, n.value()); err == nil {
			return t.UTC(), nil
		}
		if t, err := time.ParseInLocation(withoutZone, n.value(), unsaid); err == nil {
			return t, nil
		}
		return nil, fmt.Errorf("no dateTime")
	case "duration":
		d, ok := duration.ParseISO8601(n.value())
		if !ok {
			return nil, fmt.Errorf("no duration")
		}
		return d, nil
	}
	return nil, fmt.Errorf("of the type '%.100s', which is not supported", n.attribute("type"))
}

// integers returns the range of a type of integers, cut at that of int64.
func integers(kind string) (low, high int64, ok bool) {
	switch kind {
	case "byte":
		return math.MinInt8, math.MaxInt8, true
	case "unsignedByte":
		return 0, math.MaxUint8, true
	case "short":
		return math.MinInt16, math.MaxInt16, true
	case "unsignedShort":
		return 0, math.MaxUint16, true
	case "int":
		return math.MinInt32, math.MaxInt32, true
	case "unsignedInt":
		return 0, math.MaxUint32, true
	case "long":
		return math.MinInt64, math.MaxInt64, true
	case "unsignedLong":
		return 0, math.MaxInt64, true
	}
	return 0, 0, false
}

// writeValues writes a list under that name, and nothing where it is empty. The
// JavaScript SDK wants four letters for the prefix of a type; it and the Go SDK
// know no type `long`, so what fits is an int.
func writeValues(w writer, name string, values map[string]any) {
	if len(values) == 0 {
		return
	}
	w.open(name)
	for _, key := range sortedKeys(values) {
		kind, text := typeOf(values[key])
		w.open("KeyValueOfstringanyType")
		w.text("Key", key)
		w.text("Value", text, "i:type", "d6p1:"+kind, "xmlns:d6p1", nsSchema)
		w.close("KeyValueOfstringanyType")
	}
	w.close(name)
}

// typeOf is the inverse of typed. Rules that were made over AMQP bring further
// types of numbers.
func typeOf(v any) (kind, text string) {
	switch v := v.(type) {
	case string:
		return "string", v
	case bool:
		return "boolean", strconv.FormatBool(v)
	case float64:
		return "double", formatFloat(v)
	case float32:
		return "double", formatFloat(float64(v))
	case time.Time:
		if v.Location() == unsaid {
			return "dateTime", v.Format(withoutZone)
		}
		return "dateTime", v.UTC().Format(time.RFC3339Nano)
	case time.Duration:
		return "duration", duration.FormatISO8601(v)
	case int64:
		if v < math.MinInt32 || v > math.MaxInt32 {
			return "long", strconv.FormatInt(v, 10)
		}
		return "int", strconv.FormatInt(v, 10)
	case int, int8, int16, int32, uint8, uint16:
		return "int", fmt.Sprint(v)
	case uint, uint32, uint64:
		return "long", fmt.Sprint(v)
	}
	return "string", fmt.Sprint(v)
}

func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "INF"
	case math.IsInf(f, -1):
		return "-INF"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// formatTime writes a time as the service does; the zero time has no zone there.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return "0001-01-01T00:00:00"
	}
	return t.UTC().Format("2006-01-02T15:04:05.9999999Z07:00")
}
