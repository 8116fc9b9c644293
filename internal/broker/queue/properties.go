// SPDX-License-Identifier: Apache-2.0

package queue

import "reflect"

// MaxPropertiesSize bounds, in bytes, the properties that settlements can set on one message, and
// separately the reason and description of a dead-lettering. A dead-letter queue allows any number
// of abandons, so without a bound one message could grow for ever.
const MaxPropertiesSize = 64 << 10

// withProperties is what e has beyond the ordinary, with properties merged into those that it has:
// a known key gets the new value, at its old position. Views share the slice, so it is a new one.
// Its cost is bounded by MaxPropertiesSize.
func (e *entry) withProperties(properties []Property) (*extra, error) {
	x := *e.more()
	merged := make([]Property, len(x.properties), len(x.properties)+len(properties))
	copy(merged, x.properties)
	at := make(map[string]int, cap(merged))
	for i, p := range merged {
		at[p.Key] = i
	}
	size := x.propertiesSize
	for _, p := range properties {
		size += propertySize(p)
		if i, known := at[p.Key]; known {
			size -= propertySize(merged[i])
			merged[i] = p
			continue
		}
		at[p.Key] = len(merged)
		merged = append(merged, p)
	}
	if size > MaxPropertiesSize {
		return nil, ErrPropertiesTooLarge
	}
	x.properties, x.propertiesSize = merged, size
	return &x, nil
}

// propertySize is the cost of a property: key and value, and something for their place.
func propertySize(p Property) int64 {
	return int64(len(p.Key)) + valueSize(reflect.ValueOf(p.Value))
}

// valueSize is the cost of a value and of all that is in it.
func valueSize(v reflect.Value) int64 {
	size := int64(32) // its place
	switch v.Kind() {
	case reflect.String:
		size += int64(v.Len())
	case reflect.Interface:
		return valueSize(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return size + int64(v.Len())
		}
		for i := range v.Len() {
			size += valueSize(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			size += valueSize(v.Field(i))
		}
	}
	return size
}
