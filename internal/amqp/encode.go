// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// The encoders append a value in its smallest width. They cannot fail. A string that is not UTF-8
// and a symbol that is not ASCII are written with their bad bytes replaced. Otherwise a peer would
// end the whole connection because of one, and the text of an error may come from anywhere.

// AppendNull appends a null.
func AppendNull(dst []byte) []byte { return append(dst, codeNull) }

// AppendBool appends a boolean.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, codeTrue)
	}
	return append(dst, codeFalse)
}

// AppendUbyte appends a ubyte.
func AppendUbyte(dst []byte, v uint8) []byte { return append(dst, codeUbyte, v) }

// AppendUshort appends a ushort.
func AppendUshort(dst []byte, v uint16) []byte {
	return append(dst, codeUshort, byte(v>>8), byte(v))
}

// AppendUint appends a uint.
func AppendUint(dst []byte, v uint32) []byte {
	switch {
	case v == 0:
		return append(dst, codeUint0)
	case v <= math.MaxUint8:
		return append(dst, codeSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, codeUint), v)
}

// AppendUlong appends a ulong.
func AppendUlong(dst []byte, v uint64) []byte {
	switch {
	case v == 0:
		return append(dst, codeUlong0)
	case v <= math.MaxUint8:
		return append(dst, codeSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, codeUlong), v)
}

// AppendInt appends an int.
func AppendInt(dst []byte, v int32) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(dst, codeSmallInt, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(dst, codeInt), uint32(v))
}

// AppendLong appends a long.
func AppendLong(dst []byte, v int64) []byte {
	if v >= math.MinInt8 && v <= math.MaxInt8 {
		return append(dst, codeSmallLong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, codeLong), uint64(v))
}

// AppendTimestamp appends a timestamp.
func AppendTimestamp(dst []byte, v Timestamp) []byte {
	return binary.BigEndian.AppendUint64(append(dst, codeTimestamp), uint64(v))
}

// AppendUUID appends a uuid.
func AppendUUID(dst []byte, v UUID) []byte { return append(append(dst, codeUUID), v[:]...) }

// AppendBinary appends a binary. A nil v is written as an empty one, not as null.
func AppendBinary(dst, v []byte) []byte {
	return append(appendLength(dst, codeBinary8, codeBinary32, len(v)), v...)
}

// AppendString appends a string.
func AppendString(dst []byte, v string) []byte {
	v = validUTF8(v)
	return append(appendLength(dst, codeString8, codeString32, len(v)), v...)
}

// AppendSymbol appends a symbol.
func AppendSymbol(dst []byte, v Symbol) []byte {
	v = validASCII(v)
	return append(appendLength(dst, codeSymbol8, codeSymbol32, len(v)), v...)
}

// AppendSymbols appends an array of symbols, or null if there are none: Python's SDK stumbles over
// the constructor of an empty array.
func AppendSymbols(dst []byte, v ...Symbol) []byte {
	if len(v) == 0 {
		return AppendNull(dst)
	}
	wide := false
	for _, s := range v {
		wide = wide || len(s) > math.MaxUint8
	}
	dst, start := beginCompound(dst, codeArray8)
	dst = append(dst, narrowOrWide(codeSymbol8, codeSymbol32, wide))
	for _, s := range v {
		s = validASCII(s)
		dst = append(appendElementLength(dst, wide, len(s)), s...)
	}
	return endCompound(dst, start, len(v), codeArray32)
}

// AppendRaw appends a value that is encoded already, or null for a nil one.
func AppendRaw(dst []byte, v Raw) []byte {
	if v == nil {
		return append(dst, codeNull)
	}
	return append(dst, v...)
}

// AppendDescriptor appends a descriptor, for the value that is appended next.
func AppendDescriptor(dst []byte, code uint64) []byte {
	return AppendUlong(append(dst, codeDescribed), code)
}

func appendLength(dst []byte, code8, code32 byte, n int) []byte {
	wide := n > math.MaxUint8
	return appendElementLength(append(dst, narrowOrWide(code8, code32, wide)), wide, n)
}

func appendElementLength(dst []byte, wide bool, n int) []byte {
	if wide {
		return binary.BigEndian.AppendUint32(dst, uint32(n))
	}
	return append(dst, byte(n))
}

func narrowOrWide(code8, code32 byte, wide bool) byte {
	if wide {
		return code32
	}
	return code8
}

func validUTF8(s string) string {
	if utf8.ValidString(s) { // which is much faster than searching for bytes to replace
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// validASCII replaces bytes one by one, so that the length stays the same.
func validASCII(s Symbol) Symbol {
	if isASCII(s) {
		return s
	}
	b := []byte(s)
	for i := range b {
		if b[i] >= 0x80 {
			b[i] = '?'
		}
	}
	return Symbol(b)
}

// A list, map or array begins in its narrow form, three bytes with the size and count left open.
// When its end shows that it does not fit, its content is moved up by six bytes. That costs a copy
// for large values, and saves a pass that adds up sizes for small ones.
const narrowHeader, wideHeader = 3, 9

// BeginList begins a list. Append its elements to out, then call EndList with start.
func BeginList(dst []byte) (out []byte, start int) { return beginCompound(dst, codeList8) }

// EndList ends the list that BeginList began at start and that count elements were appended to.
func EndList(dst []byte, start, count int) []byte {
	return endCompound(dst, start, count, codeList32)
}

// BeginMap begins a map. Append keys and values in turn to out, then call EndMap with start.
func BeginMap(dst []byte) (out []byte, start int) { return beginCompound(dst, codeMap8) }

// EndMap ends the map that BeginMap began at start and that as many pairs were appended to.
func EndMap(dst []byte, start, pairs int) []byte {
	return endCompound(dst, start, 2*pairs, codeMap32)
}

func beginCompound(dst []byte, code8 byte) (out []byte, start int) {
	return append(dst, code8, 0, 0), len(dst)
}

func endCompound(dst []byte, start, count int, code32 byte) []byte {
	content := len(dst) - start - narrowHeader
	if content+1 <= math.MaxUint8 && count <= math.MaxUint8 {
		dst[start+1], dst[start+2] = byte(content+1), byte(count)
		return dst
	}
	dst = append(dst, make([]byte, wideHeader-narrowHeader)...)
	copy(dst[start+wideHeader:], dst[start+narrowHeader:start+narrowHeader+content])
	dst[start] = code32
	binary.BigEndian.PutUint32(dst[start+1:], uint32(content+4))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(count))
	return dst
}

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

// appendArray finds a constructor that fits every element and writes it once. Numbers take their
// full width: a constructor as narrow as the widest element would be legal, but peers are known to
// read only the full ones in arrays.
func appendArray(dst []byte, v Array, depth int) ([]byte, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	dst, start := beginCompound(dst, codeArray8)
	if len(v) == 0 {
		return endCompound(append(dst, codeNull), start, 0, codeArray32), nil
	}
	dst, bare, err := appendSharedDescriptors(dst, v, depth)
	if err != nil {
		return nil, err
	}
	code, err := sharedCode(bare)
	if err != nil {
		return nil, err
	}
	if forms[code].least() == 0 && len(v) > MaxZeroWidth {
		return nil, fmt.Errorf("%w: array of %d elements of type %s", ErrUnencodable, len(v), codeName(code))
	}
	dst = append(dst, code)
	for _, e := range bare {
		if dst, err = appendElement(dst, code, e, depth+1); err != nil {
			return nil, err
		}
	}
	return checkSize(endCompound(dst, start, len(v), codeArray32), start)
}

// appendSharedDescriptors writes the descriptors that all elements have in common and returns the
// elements without them.
func appendSharedDescriptors(dst []byte, v Array, depth int) ([]byte, Array, error) {
	first, ok := v[0].(Described)
	if !ok {
		return dst, v, nil
	}
	if err := checkDepth(depth); err != nil {
		return nil, nil, err
	}
	begin := len(dst)
	dst, err := appendAny(append(dst, codeDescribed), first.Descriptor, depth+1)
	if err != nil {
		return nil, nil, err
	}
	bare := make(Array, len(v))
	for i, e := range v {
		d, ok := e.(Described)
		if !ok {
			return nil, nil, fmt.Errorf("%w: array of described and plain values", ErrUnencodable)
		}
		same, err := appendAny([]byte{codeDescribed}, d.Descriptor, depth+1)
		if err != nil {
			return nil, nil, err
		}
		if string(same) != string(dst[begin:]) {
			return nil, nil, fmt.Errorf("%w: array of several descriptors", ErrUnencodable)
		}
		bare[i] = d.Value
	}
	return appendSharedDescriptors(dst, bare, depth+1)
}

// sharedCode returns the constructor for all elements of v.
func sharedCode(v Array) (byte, error) {
	code := byte(0)
	for _, e := range v {
		c, err := elementCode(e)
		if err != nil {
			return 0, err
		}
		switch {
		case code == 0 || code == c || c == wider(code):
			code = c
		case code != wider(c):
			return 0, fmt.Errorf("%w: array of %s and %s", ErrUnencodable, codeName(code), codeName(c))
		}
	}
	return code, nil
}

// wider returns the wide form of a narrow binary, string or symbol constructor.
func wider(c byte) byte {
	switch c {
	case codeBinary8, codeString8, codeSymbol8:
		return c + (codeBinary32 - codeBinary8)
	}
	return 0
}

// elementCode returns the constructor of an element, wide enough for this one.
func elementCode(v any) (byte, error) {
	switch v := v.(type) {
	case bool:
		return codeBool, nil
	case uint32:
		return codeUint, nil
	case uint64:
		return codeUlong, nil
	case int32:
		return codeInt, nil
	case int64:
		return codeLong, nil
	case List:
		return codeList32, nil
	case Map:
		return codeMap32, nil
	case Array:
		return codeArray32, nil
	case string:
		return narrowOrWide(codeString8, codeString32, len(validUTF8(v)) > math.MaxUint8), nil
	case Raw, Described:
		return 0, fmt.Errorf("%w: %T as the element of an array", ErrUnencodable, v)
	}
	// The remaining types have one width, or two that depend on the length alone.
	b, err := appendPrimitive(make([]byte, 0, 32), v)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// appendElement appends v as an element of an array with the constructor code.
func appendElement(dst []byte, code byte, v any, depth int) ([]byte, error) {
	switch code {
	case codeBool:
		b, _ := v.(bool)
		if b {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case codeUint:
		n, _ := v.(uint32)
		return binary.BigEndian.AppendUint32(dst, n), nil
	case codeInt:
		n, _ := v.(int32)
		return binary.BigEndian.AppendUint32(dst, uint32(n)), nil
	case codeUlong:
		n, _ := v.(uint64)
		return binary.BigEndian.AppendUint64(dst, n), nil
	case codeLong:
		n, _ := v.(int64)
		return binary.BigEndian.AppendUint64(dst, uint64(n)), nil
	}
	// Otherwise encode v with its constructor, then put the shared constructor's form in its place.
	b, err := appendAny(nil, v, depth)
	if err != nil {
		return nil, err
	}
	f := &forms[b[0]]
	switch {
	case b[0] == code:
		return append(dst, b[1:]...), nil
	case b[0] == codeList0:
		return append(dst, 0, 0, 0, 4, 0, 0, 0, 0), nil
	case f.count == 1:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)-narrowHeader+4))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b[2]))
		return append(dst, b[narrowHeader:]...), nil
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(b)-2)), b[2:]...), nil
}
