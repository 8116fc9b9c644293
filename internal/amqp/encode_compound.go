// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"encoding/binary"
	"math"
)

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
