// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"strings"
	"unicode/utf8"
)

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
