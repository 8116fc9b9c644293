// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"overdue/internal/escape"
)

// A progress says on one line of a terminal what is being measured, and nothing where nobody looks.
type progress struct {
	w     io.Writer // nil where nobody looks
	shown bool
}

func newProgress(w io.Writer, getenv func(string) string) *progress {
	if !isTerminal(w) || getenv("TERM") == "dumb" {
		return &progress{}
	}
	return &progress{w: raw(w)}
}

// say replaces the line.
func (p *progress) say(text string) {
	if p.w != nil {
		p.shown = true
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", escape.Text(text)) // a terminal that is gone is no failure
	}
}

// end removes the line.
func (p *progress) end() {
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K") // the same
	}
}
