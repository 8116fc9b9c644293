// SPDX-License-Identifier: Apache-2.0

// Package escape escapes characters that a terminal obeys or a reader cannot see: control
// characters, and marks that reorder or hide text. Message ids, names and reasons come from any
// sender, so every printed, logged, mailed or displayed text passes through this package.
//
// Escapes have the form of JSON, such as \u0085, so that JSON stays the same JSON.
package escape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text escapes s, with line ends and tabs.
func Text(s string) string { return string(escape([]byte(s), false)) }

// Lines escapes s, except line ends (\n) and tabs.
func Lines(s string) string { return string(escape([]byte(s), true)) }

// JSON escapes b, which is JSON, beyond what encoding/json does. The result may be b.
func JSON(b []byte) []byte { return escape(b, true) }

// WriteJSON writes v as indented JSON to w, with everything hidden in it escaped.
func WriteJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(JSON(b.Bytes()))
	return err
}

// hides reports whether r is invisible: a control character (U+0000–1F, U+007F–9F), a format
// character (bidi marks, U+FEFF), or a line or paragraph separator. Joiners stay, since some
// scripts need them.
func hides(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	case r == 0x200c || r == 0x200d:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// plain reports whether b is only printable ASCII, line ends and tabs.
func plain(b []byte, lines bool) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf || c == 0x7f || c < ' ' && (!lines || c != '\n' && c != '\t') {
			return false
		}
	}
	return true
}

// escape returns b itself if there is nothing to escape. Invalid UTF-8 becomes U+FFFD.
func escape(b []byte, lines bool) []byte {
	if plain(b, lines) {
		return b
	}
	out := make([]byte, 0, len(b)+len(b)/8+8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		switch {
		case lines && (r == '\n' || r == '\t') || !hides(r):
			out = utf8.AppendRune(out, r)
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\r':
			out = append(out, `\r`...)
		case r == '\t':
			out = append(out, `\t`...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = appendEscape(appendEscape(out, high), low)
		default:
			out = appendEscape(out, r)
		}
	}
	return out
}

func appendEscape(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// A Writer escapes its input except line ends and tabs. A character may span two writes. It is safe
// for concurrent use.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // the beginning of a character, of which the end is to come
}

// NewWriter returns a Writer to w, or w itself if it is one.
func NewWriter(w io.Writer) *Writer {
	if v, ok := w.(*Writer); ok {
		return v
	}
	return &Writer{w: w}
}

// Unwrap returns the writer below w, which does not escape. Use it only for control sequences
// without text from outside.
func (w *Writer) Unwrap() io.Writer { return w.w }

// Write returns len(b) unless the writer below fails, and 0 then.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	if len(w.rest) > 0 {
		b = bytes.Join([][]byte{w.rest, b}, nil)
		w.rest = nil
	}
	if cut := unfinished(b); cut > 0 {
		w.rest = bytes.Clone(b[len(b)-cut:])
		b = b[:len(b)-cut]
	}
	if len(b) == 0 {
		return n, nil
	}
	if _, err := w.w.Write(escape(b, true)); err != nil {
		return 0, err
	}
	return n, nil
}

// unfinished returns the length of the incomplete character at the end of b.
func unfinished(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// Hidden names the first character of b that should have been escaped, and its position, or returns
// "". Line ends and tabs are allowed. It is for tests.
func Hidden(b []byte) string {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Sprintf("the byte %#x at %d", b[i], i)
		}
		if hides(r) && r != '\n' && r != '\t' {
			return fmt.Sprintf("%U at %d, in %q", r, i, b[max(0, i-20):min(len(b), i+20)])
		}
		i += n
	}
	return ""
}
