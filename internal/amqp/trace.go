// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"strconv"
	"strings"
)

// Trace returns a performative on one line, for a trace of frames: its name, then its fields as
// name=value. Absent fields are left out, and a flag that is set is its name alone. The argument
// payload is the number of bytes that follow it in the frame. Neither payload nor the contents of
// SASL frames and raw fields are shown.
func Trace(p Performative, payload int) string { return string(AppendTrace(nil, p, payload)) }

// AppendTrace appends what Trace returns.
func AppendTrace(dst []byte, p Performative, payload int) []byte {
	t := line{dst}
	switch p := p.(type) {
	case nil:
		t.word("empty")
	case *Open:
		t.open(p)
	case *Begin:
		t.begin(p)
	case *Attach:
		t.attach(p)
	case *Flow:
		t.flow(p)
	case *Transfer:
		t.transfer(p)
		t.number("len", uint64(max(payload, 0)))
	case *Disposition:
		t.disposition(p)
	case *Detach:
		t.word("detach")
		t.number("handle", uint64(p.Handle))
		t.flag("closed", p.Closed)
		t.error(p.Error)
	case *End:
		t.word("end")
		t.error(p.Error)
	case *Close:
		t.word("close")
		t.error(p.Error)
	default:
		t.sasl(p)
	}
	return t.b
}

// line collects the words of a trace.
type line struct{ b []byte }

func (t *line) word(s string) { t.b = append(t.b, s...) }

func (t *line) key(name string) {
	t.b = append(t.b, ' ')
	t.b = append(t.b, name...)
	t.b = append(t.b, '=')
}

func (t *line) number(name string, v uint64) {
	t.key(name)
	t.b = strconv.AppendUint(t.b, v, 10)
}

func (t *line) optional(name string, v uint32, has bool) {
	if has {
		t.number(name, uint64(v))
	}
}

func (t *line) flag(name string, set bool) {
	if set {
		t.b = append(t.b, ' ')
		t.b = append(t.b, name...)
	}
}

func (t *line) boolean(name string, v bool) {
	t.key(name)
	t.b = strconv.AppendBool(t.b, v)
}

// maxTraceText is how many bytes of a peer's text a trace shows.
const maxTraceText = 200

// text quotes everything but plain words: texts come from the peer, and a trace must stay on one
// line.
func (t *line) text(name, v string) {
	t.key(name)
	if v != "" && len(v) <= maxTraceText && !strings.ContainsFunc(v, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' }) {
		t.b = append(t.b, v...)
		return
	}
	t.quoted(v)
}

func (t *line) quoted(v string) {
	t.b = strconv.AppendQuoteToASCII(t.b, v[:min(len(v), maxTraceText)])
	if len(v) > maxTraceText {
		t.b = append(t.b, "..."...)
	}
}

func (t *line) error(e *Error) {
	if e == nil {
		return
	}
	t.text("error", string(e.Condition))
	if e.Description != "" {
		t.text("description", e.Description)
	}
}
