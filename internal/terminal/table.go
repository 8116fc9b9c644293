// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"overdue/internal/escape"
)

// A Column is one of a [Table].
type Column struct {
	Title string
	// Min is how many columns of the terminal are enough. Longer cells are cut to it if the lines
	// are too long for the terminal. 0: cells are never cut.
	Min int
}

// A Table has its cells below each other. Where lines are too long for the terminal, it cuts cells
// of the last column first, then those of the columns before it.
type Table struct {
	width   int
	columns []Column
	rows    [][]string
}

// columnGap separates two columns.
const columnGap = 2

// NewTable returns a table for a terminal of so many columns. Width 0 is none: nothing is cut.
func NewTable(width int, columns ...Column) *Table {
	t := &Table{width: width, columns: columns}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	t.rows = append(t.rows, titles)
	return t
}

// Add adds a row with a cell for each column.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		row[i] = cmp.Or(escape.Text(cells[i]), "–")
	}
	t.rows = append(t.rows, row)
}

// Flush writes the rows that have been added since the last Flush. These share the widths of their
// columns; the first of them are the titles.
func (t *Table) Flush(w io.Writer) error {
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
	widths := make([]int, len(t.columns))
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
		if least := max(t.columns[i].Min, utf8.RuneCountInString(t.columns[i].Title)); t.columns[i].Min > 0 && widths[i] > least {
			cut := min(excess, widths[i]-least)
			widths[i] -= cut
			excess -= cut
		}
	}
	return widths
}
