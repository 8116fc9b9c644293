// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
)

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
