// SPDX-License-Identifier: Apache-2.0

// Package terminal finds the terminal behind an output, and draws lines of progress there. Where
// the output is a file or a pipe, it draws nothing.
package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"overdue/internal/escape"
)

// Raw returns w without its escapes, for control sequences and colors. Never write text from
// outside to it.
func Raw(w io.Writer) io.Writer {
	if v, ok := w.(*escape.Writer); ok {
		return v.Unwrap()
	}
	return w
}

// Is reports whether w is a terminal, and not a file or a pipe.
func Is(w io.Writer) bool {
	f, ok := Raw(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// defaultWidth is the width of a terminal that does not say how wide it is.
const defaultWidth = 100

// Width returns the number of columns of the terminal w, or 0 if w is none.
func Width(w io.Writer) int {
	if !Is(w) {
		return 0
	}
	if columns, _, err := term.GetSize(int(Raw(w).(*os.File).Fd())); err == nil && columns > 0 {
		return columns
	}
	return defaultWidth
}

// Colored reports whether output to w may have colors: w is a terminal, and the environment does
// not object.
func Colored(w io.Writer, getenv func(string) string) bool {
	return Drawable(w, getenv) && getenv("NO_COLOR") == ""
}

// Drawable reports whether w is a terminal that obeys control sequences.
func Drawable(w io.Writer, getenv func(string) string) bool {
	return Is(w) && getenv("TERM") != "dumb"
}

// Paint returns text with SGR parameters, if color is wanted.
func Paint(color bool, parameters, text string) string {
	if !color || text == "" {
		return text
	}
	return "\x1b[" + parameters + "m" + text + "\x1b[0m"
}

// A Progress shows on one line what is being done. The zero value shows nothing.
type Progress struct {
	w     io.Writer // nil if nothing can be drawn
	shown bool
}

// NewProgress returns a Progress on w, which draws nothing if w is no terminal.
func NewProgress(w io.Writer, getenv func(string) string) *Progress {
	if !Drawable(w, getenv) {
		return &Progress{}
	}
	return &Progress{w: Raw(w)}
}

// Say replaces the text of the line.
func (p *Progress) Say(text string) {
	if p.w != nil {
		p.shown = true
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", escape.Text(text)) // a terminal that is gone is no failure
	}
}

// End removes the line.
func (p *Progress) End() {
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K") // as above
	}
}

const (
	barWidth = 30
	barTick  = 100 * time.Millisecond // between two drawings
)

// A Bar shows how many of a known number are done.
type Bar struct {
	progress    Progress
	verb        string
	done, total int
	began, last time.Time
}

// NewBar returns a Bar on w for total things. The verb says what was done to them, as in "20 of 100
// resubmitted".
func NewBar(w io.Writer, getenv func(string) string, verb string, total int) *Bar {
	return &Bar{progress: *NewProgress(w, getenv), verb: verb, total: total, began: time.Now()}
}

// Add counts n more.
func (b *Bar) Add(n int) {
	b.done += n
	if time.Since(b.last) < barTick {
		return
	}
	b.last = time.Now()
	full := barWidth * min(b.done, b.total) / max(b.total, 1)
	rate := float64(b.done) / max(time.Since(b.began).Seconds(), 0.001)
	b.progress.Say(fmt.Sprintf("[%-*s] %d of %d %s, %.0f/s", barWidth, strings.Repeat("=", full), b.done, b.total, b.verb, rate))
}

// End removes the bar.
func (b *Bar) End() { b.progress.End() }

// Wrap breaks text at spaces so that its lines fit into width columns, and indents all lines but
// the first. The caller writes the first line behind as many columns of its own. A word that is too
// long stays whole: it may be an address or a command that somebody copies. Width 0 changes
// nothing.
func Wrap(text string, width, indent int) string {
	if width == 0 || indent+utf8.RuneCountInString(text) <= width {
		return text
	}
	var b strings.Builder
	column := indent
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width && column > indent:
			b.WriteByte('\n')
			b.WriteString(strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 100

// Ask asks a question, to which only y and yes agree. Where there is nobody to answer, as in a cron
// job, that is an error: what the command was called for is not done.
func Ask(w io.Writer, in io.Reader, question string) (agreed bool, err error) {
	if _, err := fmt.Fprintf(w, "%s [y/N] ", question); err != nil {
		return false, err
	}
	line, failure := bufio.NewReader(io.LimitReader(in, maxAnswer)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	if line != "" {
		failure = nil
	}
	text := "Nothing was changed."
	if failure != nil {
		text = "\n" + text
	}
	if _, err := fmt.Fprintln(w, text); err != nil {
		return false, err
	}
	switch {
	case errors.Is(failure, io.EOF):
		return false, errors.New("the question could not be asked, because standard input is at its end; --yes answers it")
	case failure != nil:
		return false, fmt.Errorf("the question could not be asked: %w; --yes answers it", failure)
	}
	return false, nil
}
