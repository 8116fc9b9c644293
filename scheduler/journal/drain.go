// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"
)

const (
	// drainBatch and drainPace bound how fast the journal is written to a monitor queue that has
	// just come back, in addition to the current sends: 1,000 companions a second.
	drainBatch = 100
	drainPace  = 100 * time.Millisecond
)

// Run writes what is in the journal to the monitor queue, what is due first first, until ctx ends;
// then it returns nil. While the queue is down it asks with one companion after pauses that grow to
// answerTimeout.
func (j *Journal) Run(ctx context.Context) error {
	retried := time.Now()
	for pause := drainPace; ; {
		refusing := j.Status().Refusing != nil
		if refusing && time.Since(retried) >= answerTimeout {
			retried = time.Now()
			j.retry(ctx)
		}
		n, err := j.drain(ctx)
		var rest <-chan time.Time
		work := j.work
		switch {
		case err != nil:
			rest, work = time.After(pause/2+rand.N(pause/2+1)), nil
			pause = min(2*pause, answerTimeout)
		case n > 0:
			rest, work = time.After(drainPace), nil
			pause = drainPace
		case refusing:
			rest = time.After(answerTimeout)
		}
		select {
		case <-rest:
		case <-work:
		case <-ctx.Done():
			return nil
		}
	}
}

// retry finds out whether companions are still refused. It opens the file where there was no room
// for it. Otherwise it asks again with the companion that was refused last, of the queue and then
// of the file. Nobody else may ask: a process that refuses is not ready. That companion costs a
// needless check.
func (j *Journal) retry(ctx context.Context) {
	j.mu.Lock()
	refused, down := j.refused, j.down
	j.mu.Unlock()
	if _, err := j.file.database(); err != nil {
		j.noteRefusal(j.file.open(), refused)
	}
	if refused != nil && down != nil {
		_ = j.Begin(*refused)(ctx) // which notes what becomes of it
	}
}

// drain writes what is due first, n companions, and takes out what is accepted. Companions that
// could not be taken out have another try before anything else is written. A disk that has no room
// for that either would have the same companions written again and again.
func (j *Journal) drain(ctx context.Context) (n int, err error) {
	var writeErr error
	if len(j.accepted) == 0 {
		size := drainBatch
		if j.Status().Down != nil {
			size = 1
		}
		var entries []entry
		if entries, err = j.file.first(size); err == nil {
			writeErr = j.write(ctx, entries)
		}
		n = len(entries)
	}
	if len(j.accepted) > 0 {
		j.setDown(nil)
		if err = j.file.remove(j.accepted); err == nil {
			j.accepted = nil
		}
		if j.file.status().Companions == 0 {
			j.report(eventEmpty, nil)
		}
	}
	if writeErr != nil && ctx.Err() == nil {
		j.setDown(writeErr)
	}
	j.noteUnread(err)
	return n, errors.Join(writeErr, err)
}

// write passes the entries to the scheduler, which writes them together with other companions, and
// waits for what becomes of them.
func (j *Journal) write(ctx context.Context, entries []entry) (err error) {
	waits := make([]func(context.Context) error, len(entries))
	for i, e := range entries {
		waits[i] = j.cfg.Scheduler.Begin(e.c)
	}
	for i, wait := range waits {
		if waitErr := j.finish(ctx, entries[i].c, wait); waitErr != nil {
			err = waitErr
			continue
		}
		j.accepted = append(j.accepted, entries[i])
	}
	return err
}

// finish waits for what becomes of c. A monitor queue may be a smaller one by now: what is too
// large for it is written in two parts.
func (j *Journal) finish(ctx context.Context, c scheduler.Companion, wait func(context.Context) error) error {
	err := wait(ctx)
	if n := len(c.References); errors.Is(err, link.ErrTooLarge) && n > 1 {
		err = nil
		for part := range slices.Chunk(c.References, (n+1)/2) {
			c.References = part
			err = errors.Join(err, j.finish(ctx, c, j.cfg.Scheduler.Begin(c)))
		}
	}
	return err
}

// noteUnread notes what is wrong with the file.
func (j *Journal) noteUnread(err error) {
	if err != nil && j.unread == nil {
		j.report(eventUnread, err)
	}
	j.unread = err
}
