// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"overdue/internal/escape"
	"overdue/internal/terminal"
)

// WriteText writes the explanation for people. width is that of the terminal, 0 without one: lines
// are not broken then.
func (x *Explanation) WriteText(w io.Writer, width int) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, terminal.Wrap(fmt.Sprintf("%s in %s is %s", escape.Text(x.MessageID), escape.Text(x.Entity), x.Verdict), width, 0))
	for _, e := range x.Timeline {
		stamp := "  " + e.Time.Format(timeFormat) + "  "
		fmt.Fprintln(&b, stamp+terminal.Wrap(escape.Text(e.Text), width, utf8.RuneCountInString(stamp)))
	}
	if x.Note != "" {
		fmt.Fprintln(&b, terminal.Wrap(escape.Text(x.Note), width, 0))
	}
	_, err := b.WriteTo(w)
	return err
}
