// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"overdue/internal/escape"
)

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
