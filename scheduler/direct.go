// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"overdue/internal/servicebus/link"
)

const (
	// directTime is how long a transfer past the SDK may take, or twice as long. Then the connection is given up, and the SDK
	// has what is left of Config.WriteTimeout: half of it, or more.
	directTime = 5 * time.Second
	// directRest is how long the SDK writes alone after the other way has failed.
	directRest = 10 * time.Second
	// directMost bounds the companions of a transfer past the SDK, each of which is a delivery.
	directMost = 100
)

// direct is the short way to the monitor queue: past the SDK, whose goroutines hand a message to each other, which was half of
// what a transfer cost. It only ever succeeds. Whatever is in its way, a transfer that has not is written by the SDK,
// which knows what to try again and how to say what is wrong; a companion that was accepted on both ways rings twice.
type direct struct {
	// Of the flight alone:
	patience context.Context // of its transfers, see wait
	give     context.CancelFunc

	mu       sync.Mutex
	writer   *link.Writer // nil while there is none
	opening  context.CancelFunc
	finished bool      // none is opened any more
	rested   time.Time // nor before

	saying sync.Mutex // held while Config.Direct is called, so that what is told last is how it is
	told   bool       // it was called
	works  bool       // it was called with nil
}

// say tells the operator when this way begins to work, with nil, and when it no longer does. What is wrong with a writer that is
// opened again and fails again is told once, and that it works not before it has.
func (s *Scheduler) say(err error) {
	d := &s.direct
	d.mu.Lock()
	finished := d.finished
	d.mu.Unlock()
	d.saying.Lock()
	defer d.saying.Unlock()
	if finished || s.cfg.Direct == nil || d.told && d.works == (err == nil) {
		return
	}
	d.told, d.works = true, err == nil
	if err != nil {
		err = fmt.Errorf("scheduler: past the SDK: %w", err)
	}
	s.cfg.Direct(err)
}

// wait ends directTime to twice directTime from now. Transfers share it: to make one was 1 % of what a message cost.
func (d *direct) wait(now time.Time, writeTimeout time.Duration) context.Context {
	span := min(directTime, writeTimeout/4)
	if d.patience != nil {
		if end, _ := d.patience.Deadline(); end.Sub(now) >= span {
			return d.patience
		}
		d.give()
	}
	d.patience, d.give = context.WithDeadline(context.Background(), now.Add(2*span))
	return d.patience
}

// writeDirect reports whether all groups are written.
func (s *Scheduler) writeDirect(now time.Time, enc *encoder, groups []*group) bool {
	if s.cfg.Links == nil || len(groups) > directMost {
		return false
	}
	w := s.directWriter(now)
	if w == nil {
		return false
	}
	for _, g := range groups {
		m, err := directMessage(enc, g)
		if err != nil || len(m.Body) > aloneSize || !w.Add(&m) {
			w.Reset()
			return false
		}
	}
	err := w.Flush(s.direct.wait(now, s.cfg.WriteTimeout))
	if err != nil { // the SDK will say what is wrong for those who wait, if it still is
		s.dropDirect(w)
	}
	s.say(err)
	return err == nil
}

// directMessage is message for this way.
func directMessage(e *encoder, g *group) (link.ScheduledMessage, error) {
	body, id, err := g.marshal(e)
	return link.ScheduledMessage{
		MessageID: id, Subject: string(g.c.Kind), ContentType: ContentType, Due: g.c.Due, Body: body,
	}, err
}

// directWriter is the one that is open, nil when there is none. Then one is opened for the transfers to come.
func (s *Scheduler) directWriter(now time.Time) *link.Writer {
	d := &s.direct
	d.mu.Lock()
	w := d.writer
	if w == nil && d.opening == nil && !d.finished && !now.Before(d.rested) {
		var ctx context.Context
		ctx, d.opening = context.WithTimeout(context.Background(), s.cfg.WriteTimeout)
		s.flights.Add(1) // one is under way: the caller's
		go s.openDirect(ctx)
	}
	d.mu.Unlock()
	if w == nil {
		return nil
	}
	if err := w.Err(); err != nil {
		s.dropDirect(w)
		s.say(err)
		return nil
	}
	return w
}

func (s *Scheduler) openDirect(ctx context.Context) {
	defer s.flights.Done()
	w, err := s.cfg.Links.Writer(ctx, s.cfg.MonitorQueue)
	d := &s.direct
	d.mu.Lock()
	d.opening()
	d.opening = nil
	if err != nil {
		d.rested = time.Now().Add(directRest)
	} else {
		d.writer = w
	}
	d.mu.Unlock()
	if err != nil { // if it matters, the SDK meets it, too
		s.say(err)
	}
}

// dropDirect cuts the connection of w, which is of no more use.
func (s *Scheduler) dropDirect(w *link.Writer) {
	d := &s.direct
	d.mu.Lock()
	if d.writer == w {
		d.writer, d.rested = nil, time.Now().Add(directRest)
	}
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.flights.Go(func() { w.Close(ctx) }) // one is under way: the caller's
}

// finishDirect keeps another one from being opened.
func (s *Scheduler) finishDirect() {
	d := &s.direct
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finished = true
	if d.opening != nil {
		d.opening()
	}
}

// closeDirect follows the last transfer.
func (s *Scheduler) closeDirect(ctx context.Context) {
	d := &s.direct
	if d.give != nil {
		d.give()
	}
	if w := d.writer; w != nil {
		d.writer = nil
		w.Close(ctx)
	}
}
