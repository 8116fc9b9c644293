// SPDX-License-Identifier: Apache-2.0

// Package terminal finds the terminal behind an output, and draws lines of progress there. Where
// the output is a file or a pipe, it draws nothing.
package terminal

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
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

// A Table has its cells below each other. Where lines are too long for the terminal, it cuts cells
// of the last column first, then those of the columns before it.
type Table struct {
	width int
	least []int // columns of the terminal for a cell that may be cut; 0: it may not
	rows  [][]string
	empty bool // no row was ever added
}

// columnGap separates two columns.
const columnGap = 2

// NewTable returns a table for a terminal of so many columns. Width 0 is none: nothing is cut. A
// title such as NAME:12 says that the cells below may be cut to 12 columns of the terminal.
func NewTable(width int, titles ...string) *Table {
	t := &Table{width: width, least: make([]int, len(titles)), empty: true}
	for i, title := range titles {
		name, least, _ := strings.Cut(title, ":")
		titles[i] = name
		if n, err := strconv.Atoi(least); err == nil {
			t.least[i] = max(n, utf8.RuneCountInString(name))
		}
	}
	t.rows = append(t.rows, titles)
	return t
}

// Add adds a row with a cell for each column.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = cmp.Or(escape.Text(fmt.Sprint(cell)), "–")
	}
	t.rows, t.empty = append(t.rows, row), false
}

// Flush writes the rows that have been added since the last Flush. These share the widths of their
// columns; the first of them are the titles. It writes nothing if there has never been a row.
func (t *Table) Flush(w io.Writer) error {
	if t.empty {
		return nil
	}
	widths := t.widths()
	columns := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	for _, row := range t.rows {
		for i, cell := range row {
			if letters := []rune(cell); len(letters) > widths[i] {
				row[i] = string(letters[:widths[i]-1]) + "…"
			}
		}
		_, _ = fmt.Fprintln(columns, strings.Join(row, "\t")) // Flush has the error
	}
	t.rows = t.rows[:0]
	return columns.Flush()
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.least))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if t.width == 0 {
		return widths
	}
	excess := columnGap*(len(widths)-1) - t.width
	for _, n := range widths {
		excess += n
	}
	for i := len(widths) - 1; i >= 0 && excess > 0; i-- {
		if t.least[i] > 0 && widths[i] > t.least[i] {
			cut := min(excess, widths[i]-t.least[i])
			widths[i] -= cut
			excess -= cut
		}
	}
	return widths
}
