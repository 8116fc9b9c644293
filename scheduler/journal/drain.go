// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// drainBatch and drainPace bound how fast the journal is written to a monitor queue that has
	// just come back, in addition to the current sends: 1,000 companions a second.
	drainBatch = 100
	drainPace  = 100 * time.Millisecond
	// A monitor queue that is down is asked again after a pause, which grows.
	shortestPause = 200 * time.Millisecond
	longestPause  = 5 * time.Second
)

// Run writes what is in the journal to the monitor queue, what is due first first, until ctx ends;
// then it returns nil. While the queue is down it asks with one companion after growing pauses.
func (j *Journal) Run(ctx context.Context) error {
	var after []byte // the one behind which it goes on: those before it stay for now
	pause := shortestPause
	retried := time.Now() // what was refused
	for {
		if time.Since(retried) >= longestPause {
			retried = time.Now()
			j.retry(ctx)
		}
		n, last, err := j.drain(ctx, after)
		after = last
		var rest <-chan time.Time
		work := j.work
		switch {
		case err != nil:
			rest, work = time.After(pause/2+rand.N(pause/2+1)), nil
			pause = min(2*pause, longestPause)
		case n > 0:
			rest, work = time.After(drainPace), nil
			pause = shortestPause
		case last != nil: // what is too large for the queue has another try when there is time
			after, rest = nil, time.After(longestPause)
		case j.Status().Refusing != nil:
			rest = time.After(longestPause)
		}
		select {
		case <-rest:
		case <-work:
		case <-ctx.Done():
			return nil
		}
	}
}

// retry finds out whether companions are still refused: it opens the file where there was no room
// for it, and otherwise asks again with the companion that was refused last, of the queue and then
// of the file. Nobody else may ask: a process that refuses is not ready. That companion costs a
// needless check.
func (j *Journal) retry(ctx context.Context) {
	if j.Status().Refusing == nil {
		return
	}
	j.mu.Lock()
	refused := j.refused
	j.mu.Unlock()
	if _, err := j.file.database(); err != nil {
		j.noteRefusal(j.file.open(), refused)
	}
	if refused != nil && j.phase.Load().down != nil {
		_ = j.Begin(*refused)(ctx) // commit and rose note what becomes of it
	}
}

// drain writes what is due first behind a key, n companions, and takes out what is accepted. It
// returns behind which key to go on.
func (j *Journal) drain(ctx context.Context, after []byte) (n int, last []byte, err error) {
	if err := j.takeOut(); err != nil {
		return 0, after, err
	}
	size := drainBatch
	if j.phase.Load().down != nil {
		size = 1
	}
	entries, err := j.file.first(after, size)
	j.noteUnread(err)
	if err != nil || len(entries) == 0 {
		return 0, after, err
	}
	last, err = j.write(ctx, entries, after)
	if len(j.accepted) > 0 {
		j.rose()
	}
	if err != nil && ctx.Err() == nil {
		j.fell(err)
	}
	return len(entries), last, errors.Join(err, j.takeOut())
}

// write passes the entries to the scheduler, which writes them together with other companions, and
// waits for what becomes of them. It notes those that are accepted, and moves last behind those
// that will never be.
func (j *Journal) write(ctx context.Context, entries []entry, last []byte) (_ []byte, err error) {
	requests := make([]*request, len(entries))
	for i := range entries {
		requests[i] = newRequest(entries[i].c)
		j.s.Start(entries[i].c, requests[i])
	}
	for i, t := range requests {
		switch requestErr := t.wait(ctx); {
		case requestErr == nil:
			j.accepted = append(j.accepted, entries[i])
		case another(requestErr):
			err = requestErr
		default:
			last = entries[i].key
			if !j.tooLarge {
				j.tooLarge = true
				j.report(eventTooLarge, requestErr)
			}
		}
	}
	return last, err
}

// takeOut takes out what the monitor queue has accepted. It is tried until it succeeds before
// anything else is written: a disk that has no room for that either would have the same companions
// written again and again.
func (j *Journal) takeOut() error {
	if len(j.accepted) == 0 {
		return nil
	}
	err := j.file.remove(j.accepted)
	j.noteUnread(err)
	if err != nil {
		return err
	}
	j.accepted = nil
	if j.file.status().Companions == 0 {
		j.report(eventEmpty, nil)
	}
	return nil
}

// noteUnread notes what is wrong with the file.
func (j *Journal) noteUnread(err error) {
	if err != nil && j.unread == nil {
		j.report(eventUnread, err)
	}
	j.unread = err
}
