// SPDX-License-Identifier: Apache-2.0

package terminal

import "testing"

func TestWrapKeepsLinesWithinTheWidth(t *testing.T) {
	for _, c := range []struct {
		text          string
		width, indent int
		want          string
	}{
		{"one two three", 0, 0, "one two three"},
		{"one two three", 13, 0, "one two three"},
		{"one two three", 12, 0, "one two\nthree"},
		{"one two three", 7, 2, "one\n  two\n  three"},
		{"müde Bären", 10, 0, "müde Bären"},
		{"a-long-command --flag value", 8, 0, "a-long-command\n--flag\nvalue"},
		{"a b", 3, 5, "a\n     b"},
		{"two  spaces", 11, 0, "two  spaces"},
		{"", 3, 0, ""},
	} {
		if got := Wrap(c.text, c.width, c.indent); got != c.want {
			t.Errorf("Wrap(%q, %d, %d) = %q, want %q", c.text, c.width, c.indent, got, c.want)
		}
	}
}
