// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"
)

// bar shows how far something has come, to whoever looks.
type bar struct {
	p         *program
	verb      string
	done, all int
	began     time.Time
	last      time.Time
}

func (p *program) newBar(quiet bool, verb string, all int) *bar {
	b := &bar{verb: verb, all: all, began: time.Now()}
	if !quiet && isTerminal(p.stdout) {
		b.p = p
	}
	return b
}

const (
	dlqBarWidth = 30
	dlqBarTick  = 100 * time.Millisecond
)

func (b *bar) add(n int) {
	b.done += n
	if b.p == nil || time.Since(b.last) < dlqBarTick {
		return
	}
	b.last = time.Now()
	full := dlqBarWidth * min(b.done, b.all) / max(b.all, 1)
	rate := float64(b.done) / max(time.Since(b.began).Seconds(), 0.001)
	fmt.Fprintf(raw(b.p.stdout), "\r[%s%s] %d of %d %s, %.0f/s ", strings.Repeat("=", full), strings.Repeat(" ", dlqBarWidth-full), b.done, b.all, b.verb, rate)
}

// end clears the line.
func (b *bar) end() {
	if b.p != nil {
		fmt.Fprintf(raw(b.p.stdout), "\r%s\r", strings.Repeat(" ", dlqBarWidth+60))
	}
}
