// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"slices"
	"time"

	"overdue/internal/lag"
	"overdue/internal/web"
)

// say tells the dashboard what happens at the moment.
func (d *demo) say(text string) { d.phase.Store(&text) }

// page is what the dashboard shows of the demo.
func (d *demo) page() *web.Demo {
	p := &web.Demo{}
	if text := d.phase.Load(); text != nil {
		p.Text = *text
	}
	p.Queues = []web.DemoQueue{d.queue(demoEager, "Watched by Overdue"), d.queue(demoLazy, "Left to itself")}
	return p
}

// queue reads the stamps of one queue of the broker: that is no receive, and moves nothing.
func (d *demo) queue(name, title string) web.DemoQueue {
	v := web.DemoQueue{Name: name, Title: title, Sent: d.n}
	q, ok := d.proc.Embedded().Queue(name)
	if !ok {
		return v
	}
	now := time.Now()
	var lags, late []time.Duration
	for _, m := range q.Peek(nil, 0, d.n) {
		v.Waiting++
		if overdue := now.Sub(m.EnqueuedTime.Add(m.TTL)); overdue > 0 {
			late = append(late, overdue)
		}
	}
	for _, m := range q.DeadLetterQueue().Peek(nil, 0, d.n) {
		v.Dead++
		lags = append(lags, m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(m.TTL)))
	}
	// Overdue needs some milliseconds, during which a message is overdue and still waits.
	if late = slices.DeleteFunc(late, func(l time.Duration) bool { return l < time.Second }); len(late) > 0 {
		v.Overdue = len(late)
		v.Verdict = fmt.Sprintf("%d are overdue, the first for %.0f s, and nobody knows", len(late), slices.Max(late).Seconds())
		return v
	}
	if len(lags) == 0 {
		v.Verdict = "No deadline has passed yet"
		return v
	}
	l := lag.Of(lags)
	if l.Max < 2000 {
		v.Verdict = fmt.Sprintf("Dead-lettered within %.0f ms of the deadline, 99 of 100 within %.0f ms", l.Max, l.P99)
	} else {
		v.Verdict = fmt.Sprintf("Dead-lettered up to %.0f s after the deadline, half of them more than %.0f s after it", l.Max/1000, l.P50/1000)
	}
	return v
}
