// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

var hujsonLine = regexp.MustCompile(`^hujson: line (\d+), column \d+: `)

// hujsonError turns an error about the text into a SyntaxError.
func hujsonError(err error) error {
	text, line := err.Error(), 1
	if m := hujsonLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits, as the expression has it
		text = text[len(m[0]):]
	}
	return &SyntaxError{Line: line, Text: "this is not JSON: " + text}
}

// jsonError says where the decoder stopped, and in the file's words what it
// did not like.
func jsonError(text []byte, d *json.Decoder, err error) error {
	offset, say, unknown := d.InputOffset(), err.Error(), false
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		offset = kind.Offset
		say = fmt.Sprintf("%s cannot be a %s", kind.Field, kind.Value)
	case errors.Is(err, io.EOF):
		say = "the file is empty"
	case strings.HasPrefix(say, "json: unknown field "):
		name := strings.TrimPrefix(say, "json: unknown field ")
		// The decoder does not tell where; a key that is unknown mostly stands there once.
		if i := bytes.Index(text, []byte(name)); i >= 0 {
			offset = int64(i)
		}
		say, unknown = name+" is not a property that the emulator knows here", true
	default:
		say = strings.TrimPrefix(say, "json: ")
	}
	return &SyntaxError{lineOf(text, offset), say, unknown}
}

// lineOf is the line of an offset, from 1.
func lineOf(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(max(int(offset), 0), len(text))], []byte("\n"))
}
