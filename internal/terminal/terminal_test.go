// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/escape"
)

func nothing(string) string { return "" }

// openTerminal returns the master of a pseudo-terminal, which is a terminal as well.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal here: %v", err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestATerminalIsFoundBehindEscapes(t *testing.T) {
	f := openTerminal(t)
	for _, w := range []io.Writer{f, escape.NewWriter(f)} {
		if !Is(w) || Width(w) != defaultWidth {
			t.Errorf("%T: terminal %v of %d columns, want one of %d", w, Is(w), Width(w), defaultWidth)
		}
		for _, c := range []struct {
			name, value       string
			drawable, colored bool
		}{{"", "", true, true}, {"NO_COLOR", "1", true, false}, {"TERM", "dumb", false, false}} {
			getenv := func(name string) string { return map[string]string{c.name: c.value}[name] }
			if got := Drawable(w, getenv); got != c.drawable {
				t.Errorf("%s=%s: Drawable = %v, want %v", c.name, c.value, got, c.drawable)
			}
			if got := Colored(w, getenv); got != c.colored {
				t.Errorf("%s=%s: Colored = %v, want %v", c.name, c.value, got, c.colored)
			}
		}
	}
	if p := NewProgress(escape.NewWriter(f), nothing); p.w != f {
		t.Errorf("progress is drawn on %v, want the terminal itself", p.w)
	}
}

func TestNothingIsDrawnInAFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, w := range []io.Writer{file, io.Discard, escape.NewWriter(file)} {
		if Is(w) || Width(w) != 0 || Drawable(w, nothing) || Colored(w, nothing) {
			t.Errorf("%T counts as a terminal", w)
		}
		p := NewProgress(w, nothing)
		p.Say("working")
		p.End()
		b := NewBar(w, nothing, "purged", 10)
		b.Add(1)
		b.End()
	}
	if got, err := os.ReadFile(file.Name()); err != nil || len(got) > 0 {
		t.Errorf("the file has %q, %v, want nothing", got, err)
	}
}

func TestProgressReplacesItsLine(t *testing.T) {
	var out bytes.Buffer
	p := Progress{w: &out}
	p.End() // of a line that was never shown
	p.Say("one\x1b[2J")
	p.Say("two")
	p.End()
	if want := "\r\x1b[Kone\\u001b[2J\r\x1b[Ktwo\r\x1b[K"; out.String() != want {
		t.Errorf("drew %q, want %q", out.String(), want)
	}
}

func TestABarGrowsAndIsNotDrawnTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := NewBar(io.Discard, nothing, "purged", 60)
		b.progress.w = &out
		time.Sleep(time.Second)
		b.Add(20)
		b.Add(1) // at once
		time.Sleep(time.Second)
		b.Add(79)
		b.End()
		want := "\r\x1b[K[==========                    ] 20 of 60 purged, 20/s" +
			"\r\x1b[K[==============================] 100 of 60 purged, 50/s" +
			"\r\x1b[K"
		if out.String() != want {
			t.Errorf("drew %q, want %q", out.String(), want)
		}
	})
}
