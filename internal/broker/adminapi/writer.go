// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bufio"
	"io"
	"strings"
	"unicode/utf8"
)

// writer writes XML. encoding/xml would choose the prefixes of namespaces itself,
// and clients look for them: the JavaScript SDK reads `i:type="d6p1:int"` by its
// spelling.
type writer struct {
	b      *bufio.Writer
	counts string // the prefix of what CountDetails has in it, by its depth in the service's document
}

func newWriter(w io.Writer) writer { return writer{bufio.NewWriter(w), "d2p1"} }

// open begins an element. attributes are names and values in turn.
func (w writer) open(name string, attributes ...string) {
	w.raw("<" + name)
	for i := 0; i+1 < len(attributes); i += 2 {
		w.raw(" " + attributes[i] + `="`)
		w.escape(attributes[i+1], true)
		w.raw(`"`)
	}
	w.raw(">")
}

func (w writer) close(name string) { w.raw("</" + name + ">") }

// text is an element with nothing but text in it.
func (w writer) text(name, value string, attributes ...string) {
	w.open(name, attributes...)
	w.escape(value, false)
	w.close(name)
}

func (w writer) link(rel, href string) {
	w.open("link", "rel", rel, "href", href)
	w.close("link")
}

// raw writes what is XML already.
func (w writer) raw(s string) {
	_, _ = w.b.WriteString(s) // an error stays, and makes flush return it
}

// flush ends a document. That the client has gone by now is nothing to tell
// anybody.
func (w writer) flush() { _ = w.b.Flush() }

// escape leaves quotes in text alone, as the service does: tests of its SDKs look
// for them in the text of errors.
func (w writer) escape(s string, attribute bool) {
	last := 0
	for i, r := range s {
		size := utf8.RuneLen(r)
		var esc string
		switch {
		case r == '&':
			esc = "&amp;"
		case r == '<':
			esc = "&lt;"
		case r == '>':
			esc = "&gt;"
		case r == '\r':
			esc = "&#xD;"
		case attribute && r == '"':
			esc = "&quot;"
		case attribute && r == '\n':
			esc = "&#xA;"
		case attribute && r == '\t':
			esc = "&#x9;"
		case r == utf8.RuneError:
			_, size = utf8.DecodeRuneInString(s[i:])
			esc = "\uFFFD"
		case !validChar(r):
			esc = "\uFFFD"
		default:
			continue
		}
		w.raw(s[last:i])
		w.raw(esc)
		last = i + size
	}
	w.raw(s[last:])
}

// validChar reports whether XML 1.0 (section 2.2) allows a character.
func validChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000
}

// markup returns what write writes.
func markup(write func(writer)) string {
	var s strings.Builder
	w := newWriter(&s)
	write(w)
	w.flush()
	return s.String()
}
