// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"errors"
	"testing"
)

// written is what one Flush of t writes.
func written(t *testing.T, table *Table) string {
	t.Helper()
	var b bytes.Buffer
	if err := table.Flush(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestATableFitsIntoTheTerminal(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, "ID          N     TEXT\nmüde-bären  4711  a long text\n–           1     x\n"},
		{30, "ID          N     TEXT\nmüde-bären  4711  a long text\n–           1     x\n"},
		{25, "ID          N     TEXT\nmüde-bären  4711  a long…\n–           1     x\n"},
		{20, "ID       N     TEXT\nmüde-b…  4711  a lo…\n–        1     x\n"},
		{5, "ID     N     TEXT\nmüde…  4711  a lo…\n–      1     x\n"}, // no less than the least
	} {
		table := NewTable(c.width, "ID:5", "N", "TEXT:5")
		table.Add("müde-bären", "4711", "a long text")
		table.Add("", "1", "x")
		if got := written(t, table); got != c.want {
			t.Errorf("width %d:\n%swant\n%s", c.width, got, c.want)
		}
	}
}

func TestATableIsWrittenInPiecesWithOneTitle(t *testing.T) {
	table := NewTable(0, "A", "B")
	table.Add("a\x1b[2J\nb", "c")
	for _, want := range []string{"A              B\na\\u001b[2J\\nb  c\n", "", "dd  e\n"} {
		if want == "dd  e\n" {
			table.Add("dd", "e")
		}
		if got := written(t, table); got != want {
			t.Errorf("wrote %q, want %q", got, want)
		}
	}
}

func TestATableSaysThatNobodyReadsIt(t *testing.T) {
	gone := errors.New("gone")
	table := NewTable(0, "A")
	table.Add("a")
	if err := table.Flush(failing{gone}); !errors.Is(err, gone) {
		t.Errorf("Flush = %v, want %v", err, gone)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
