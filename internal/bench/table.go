// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"overdue/internal/terminal"
)

// tableWidth is how many columns the output for people has at most.
const tableWidth = 100

// tableOf aligns rows, the first of which has the titles. All columns but the first are aligned to
// the right. A table that is too wide is turned: its columns become rows.
func tableOf(rows [][]string) string {
	if columnsOf(rows) > tableWidth {
		if turned := turn(rows); columnsOf(turned) <= tableWidth {
			rows = turned
		}
	}
	width := widths(rows)
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + space)
			} else {
				line.WriteString("  " + space + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

func widths(rows [][]string) []int {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	return width
}

// columnsOf returns how many columns of a terminal rows take.
func columnsOf(rows [][]string) int {
	n := -2
	for _, w := range widths(rows) {
		n += w + 2
	}
	return n
}

// turn makes rows of columns.
func turn(rows [][]string) [][]string {
	turned := make([][]string, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			turned[i] = append(turned[i], cell)
		}
	}
	return turned
}

// tableOfFigures returns the output of `overdue bench`. A target has the unit of what was measured.
// A description that is too long takes several lines.
func tableOfFigures(figures []Figure) string {
	rows := [][]string{{"", "measured", "target", "met"}}
	for i := range figures {
		row := figures[i].row()
		row[2] = strings.TrimSuffix(row[2], " "+figures[i].Unit)
		rows = append(rows, row[:])
	}
	width := widths(rows)
	most := tableWidth - (columnsOf(rows) - width[0])
	var wrapped [][]string
	for _, row := range rows {
		lines := strings.Split(terminal.Wrap(row[0], most, 2), "\n")
		lines[0] = strings.TrimPrefix(lines[0], "  ")
		for _, line := range lines[:len(lines)-1] {
			wrapped = append(wrapped, []string{line, "", "", ""})
		}
		wrapped = append(wrapped, append([]string{lines[len(lines)-1]}, row[1:]...))
	}
	return tableOf(wrapped)
}

// writeLines writes text for people, and wraps the lines of prose that are too long.
func writeLines(w io.Writer, text string) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		prose := strings.TrimLeft(line, " ")
		indent := len(line) - len(prose)
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > tableWidth {
			line = line[:indent] + terminal.Wrap(prose, tableWidth, indent+2)
		}
		b.WriteString(line)
	}
	return writeText(w, b.String())
}

// formatCells formats the cells of a row.
func formatCells(values ...any) []string {
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = fmt.Sprint(v)
	}
	return row
}

// writeReport writes a result for people: how it was measured, rows if there are any, notes on them
// in lines, and the figures.
func writeReport(w io.Writer, headline string, rows [][]string, notes string, figures []Figure) error {
	text := headline + "\n\n"
	if rows != nil {
		text += tableOf(rows) + notes + "\n"
	}
	return writeLines(w, text+tableOfFigures(figures))
}
