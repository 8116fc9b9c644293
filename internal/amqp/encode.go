// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
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
