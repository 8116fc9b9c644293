// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"overdue/internal/escape"
	"overdue/internal/terminal"
)

// queueCounts is what the demo shows of a queue.
type queueCounts struct{ waiting, dead int }

// frame is one moment of the demo.
type frame struct {
	elapsed     time.Duration
	total       int // messages per queue
	eager, lazy queueCounts
	last        bool // of its phase
}

// A screen shows the demo while it runs.
type screen interface {
	say(text string)
	show(f frame)
}

// Columns and rows that the live picture takes.
const (
	screenWidth = 78
	barWidth    = 30
)

// NewScreen draws in place on a terminal that is wide enough, and writes a line per
// second elsewhere.
func NewScreen(w io.Writer, getenv func(string) string) screen {
	if f, ok := terminal.Raw(w).(*os.File); ok && terminal.Is(f) && getenv("TERM") != "dumb" {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= screenWidth {
			return &liveScreen{w: f, color: getenv("NO_COLOR") == ""}
		}
	}
	return &lineScreen{w: w}
}

// NoScreen shows nothing.
type NoScreen struct{}

func (NoScreen) say(string) {}
func (NoScreen) show(frame) {}

// lineScreen writes one line per second, and one at the end of a phase.
type lineScreen struct {
	w    io.Writer
	next time.Duration
}

func (s *lineScreen) say(text string) { _, _ = fmt.Fprintln(s.w, text) } // a screen that is gone is no failure

// show keeps quiet between full seconds: the output may be a log of a CI job.
func (s *lineScreen) show(f frame) {
	if f.elapsed < s.next && !f.last {
		return
	}
	s.next = f.elapsed.Truncate(time.Second) + time.Second
	s.say(fmt.Sprintf("%5.1fs  watched: %4d waiting %4d dead-lettered   unwatched: %4d waiting %4d dead-lettered",
		f.elapsed.Seconds(), f.eager.waiting, f.eager.dead, f.lazy.waiting, f.lazy.dead))
}

// liveScreen redraws five rows in place.
type liveScreen struct {
	w     io.Writer
	color bool
	drawn int // rows of the picture that the cursor stands below
}

// say writes text below the picture, broken at spaces, since a line that the terminal
// breaks would upset the count of rows.
func (s *liveScreen) say(text string) {
	s.drawn = 0 // the picture above stays
	text = escape.Lines(text)
	for len(text) > screenWidth {
		cut := strings.LastIndexByte(text[:screenWidth], ' ')
		if cut <= 0 {
			break
		}
		_, _ = fmt.Fprintln(s.w, text[:cut]) // a screen that is gone is no failure
		text = text[cut+1:]
	}
	_, _ = fmt.Fprintln(s.w, text)
}

// show writes the whole picture in one go, so that no half of it is ever seen.
func (s *liveScreen) show(f frame) {
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	rows := []string{
		fmt.Sprintf("%5.1f s after the first send", f.elapsed.Seconds()),
		s.row("watched by Overdue", "waiting", f.eager.waiting, f.total, "36"),
		s.row("", "dead-lettered", f.eager.dead, f.total, "32"),
		s.row("left to itself", "waiting", f.lazy.waiting, f.total, "36"),
		s.row("", "dead-lettered", f.lazy.dead, f.total, "32"),
	}
	for _, row := range rows {
		b.WriteString("\x1b[2K" + row + "\n") // clear the line first
	}
	s.drawn = len(rows)
	_, _ = io.WriteString(s.w, b.String()) // a screen that is gone is no failure
}

// row is one bar. Every message is worth a part of a block, so a queue that is not empty
// never seems to be.
func (s *liveScreen) row(queue, what string, n, total int, color string) string {
	full := min(barWidth, (n*barWidth+total-1)/max(1, total))
	bar := strings.Repeat("█", full)
	if s.color {
		bar = "\x1b[" + color + "m" + bar + "\x1b[0m"
	}
	return fmt.Sprintf("%-19s %-13s %s%s %5d", queue, what, bar, strings.Repeat("·", barWidth-full), n)
}
