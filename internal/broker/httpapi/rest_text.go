// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"overdue/internal/amqp"
)

// textOf writes a value of AMQP as text for a reader that does not speak AMQP. A string stays as it
// is, null becomes empty, bytes become base64, an instant is as in RFC 3339. A decimal becomes the
// hexadecimal digits of its encoding, and a value with elements becomes JSON.
func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case amqp.Symbol:
		return string(v)
	case amqp.Char:
		return string(rune(v))
	case amqp.UUID:
		return v.String()
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case amqp.Timestamp:
		return v.Time().Format(time.RFC3339Nano)
	case amqp.Decimal32:
		return hex.EncodeToString(v[:])
	case amqp.Decimal64:
		return hex.EncodeToString(v[:])
	case amqp.Decimal128:
		return hex.EncodeToString(v[:])
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return string(appendJSON(nil, v))
}

// appendJSON writes a value of AMQP as JSON. Its depth is bounded where it was
// decoded. A described value is written without its descriptor.
func appendJSON(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case uint8:
		return strconv.AppendUint(dst, uint64(v), 10)
	case uint16:
		return strconv.AppendUint(dst, uint64(v), 10)
	case uint32:
		return strconv.AppendUint(dst, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case int8:
		return strconv.AppendInt(dst, int64(v), 10)
	case int16:
		return strconv.AppendInt(dst, int64(v), 10)
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float32:
		return appendJSONFloat(dst, float64(v), 32)
	case float64:
		return appendJSONFloat(dst, v, 64)
	case amqp.List:
		return appendJSONArray(dst, v)
	case amqp.Array:
		return appendJSONArray(dst, v)
	case amqp.Described:
		return appendJSON(dst, v.Value)
	case amqp.Map:
		dst = append(dst, '{')
		for i, p := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSONString(dst, textOf(p.Key)), ':')
			dst = appendJSON(dst, p.Value)
		}
		return append(dst, '}')
	}
	return appendJSONString(dst, textOf(v))
}

func appendJSONArray(dst []byte, elements []any) []byte {
	dst = append(dst, '[')
	for i, e := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSON(dst, e)
	}
	return append(dst, ']')
}

// appendJSONFloat writes what JSON has no number for as text.
func appendJSONFloat(dst []byte, f float64, bits int) []byte {
	text := strconv.FormatFloat(f, 'g', -1, bits)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return appendJSONString(dst, text)
	}
	return append(dst, text...)
}

func appendJSONString(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // cannot be: every string has a form
		return append(dst, '"', '"')
	}
	return append(dst, text...)
}
