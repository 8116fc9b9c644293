// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AppendValue appends a value of any of the types that types.go lists. It returns dst unchanged
// and an error that wraps ErrUnencodable for any other Go type, for an Array of several types and
// for nesting beyond MaxDepth. A nil []byte is an empty binary, a nil List, Map or Array an empty
// one.
func AppendValue(dst []byte, v any) ([]byte, error) {
	out, err := appendAny(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func appendAny(dst []byte, v any, depth int) ([]byte, error) {
	switch v := v.(type) {
	case List:
		return appendList(dst, v, depth)
	case Map:
		return appendMap(dst, v, depth)
	case Array:
		return appendArray(dst, v, depth)
	case Described:
		return appendDescribed(dst, v, depth)
	}
	return appendPrimitive(dst, v)
}

func appendPrimitive(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return AppendNull(dst), nil
	case bool:
		return AppendBool(dst, v), nil
	case uint8:
		return AppendUbyte(dst, v), nil
	case uint16:
		return AppendUshort(dst, v), nil
	case uint32:
		return AppendUint(dst, v), nil
	case uint64:
		return AppendUlong(dst, v), nil
	case int8:
		return append(dst, codeByte, byte(v)), nil
	case int16:
		return binary.BigEndian.AppendUint16(append(dst, codeShort), uint16(v)), nil
	case int32:
		return AppendInt(dst, v), nil
	case int64:
		return AppendLong(dst, v), nil
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, codeFloat), math.Float32bits(v)), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, codeDouble), math.Float64bits(v)), nil
	case Decimal32:
		return append(append(dst, codeDecimal32), v[:]...), nil
	case Decimal64:
		return append(append(dst, codeDecimal64), v[:]...), nil
	case Decimal128:
		return append(append(dst, codeDecimal128), v[:]...), nil
	case Char:
		return binary.BigEndian.AppendUint32(append(dst, codeChar), uint32(v)), nil
	case Timestamp:
		return AppendTimestamp(dst, v), nil
	case UUID:
		return AppendUUID(dst, v), nil
	case []byte:
		return AppendBinary(dst, v), nil
	case string:
		return AppendString(dst, v), nil
	case Symbol:
		return AppendSymbol(dst, v), nil
	case Raw:
		return AppendRaw(dst, v), nil
	}
	return nil, fmt.Errorf("%w: Go type %T", ErrUnencodable, v)
}

func appendDescribed(dst []byte, v Described, depth int) ([]byte, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	dst, err := appendAny(append(dst, codeDescribed), v.Descriptor, depth+1)
	if err != nil {
		return nil, err
	}
	return appendAny(dst, v.Value, depth+1)
}

func appendList(dst []byte, v List, depth int) ([]byte, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	if len(v) == 0 {
		return append(dst, codeList0), nil
	}
	dst, start := BeginList(dst)
	var err error
	for _, e := range v {
		if dst, err = appendAny(dst, e, depth+1); err != nil {
			return nil, err
		}
	}
	return checkSize(EndList(dst, start, len(v)), start)
}

func appendMap(dst []byte, v Map, depth int) ([]byte, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	dst, start := BeginMap(dst)
	var err error
	for _, p := range v {
		if dst, err = appendAny(dst, p.Key, depth+1); err != nil {
			return nil, err
		}
		if dst, err = appendAny(dst, p.Value, depth+1); err != nil {
			return nil, err
		}
	}
	return checkSize(EndMap(dst, start, len(v)), start)
}

func checkDepth(depth int) error {
	if depth >= MaxDepth {
		return fmt.Errorf("%w: nested deeper than %d", ErrUnencodable, MaxDepth)
	}
	return nil
}

// checkSize refuses values that the widest size field cannot state.
func checkSize(dst []byte, start int) ([]byte, error) {
	if uint64(len(dst)-start) > math.MaxUint32 {
		return nil, fmt.Errorf("%w: %d bytes in one value", ErrUnencodable, len(dst)-start)
	}
	return dst, nil
}
