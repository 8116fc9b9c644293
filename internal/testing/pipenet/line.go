// SPDX-License-Identifier: Apache-2.0

package pipenet

import (
	"net"
	"os"
	"sync"
	"time"
)

const (
	// lineLimit is how many bytes may be under way in one direction of one
	// connection before the writer waits, like a full window of TCP.
	lineLimit = 256 << 10
	// linger bounds how long the last bytes of a closed connection wait for a
	// reader.
	linger = 5 * time.Second
)

// A line carries the delayed bytes of one direction. Its goroutine exists only
// while bytes are under way, and ends with the connection.
type line struct {
	c    *conn
	room chan struct{} // signalled when bytes leave
	last deadline      // of the bytes of a closed connection

	mu      sync.Mutex
	chunks  []chunk
	size    int
	running bool
	closing bool // close the connection behind the last chunk
}

type chunk struct {
	due  time.Time
	data []byte
}

func (l *line) init(c *conn) {
	l.c = c
	l.room = make(chan struct{}, 1)
	l.last.init()
}

// busy reports whether bytes are under way; later ones must queue behind them.
func (l *line) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

func (l *line) isClosing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closing
}

// put sends a copy of b on its way, to arrive by later. It waits while the
// line is full. There is one writer at a time.
func (l *line) put(b []byte, by time.Duration, late <-chan struct{}) error {
	for {
		l.mu.Lock()
		if l.closing {
			l.mu.Unlock()
			return net.ErrClosed
		}
		if l.size < lineLimit {
			l.chunks = append(l.chunks, chunk{time.Now().Add(by), append([]byte(nil), b...)})
			l.size += len(b)
			if !l.running {
				l.running = true
				go l.run()
			}
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-l.room:
		case <-l.c.dead:
			return l.c.err
		case <-late:
			return os.ErrDeadlineExceeded
		}
	}
}

// finish asks the line to close the connection once it is empty. It reports
// false when there is nothing under way.
func (l *line) finish() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running || l.c.isDead() {
		return false
	}
	if !l.closing {
		l.closing = true
		// Only now: a live connection has no bound on how slowly it is read.
		end := time.Now().Add(linger)
		l.last.set(end)
		// Setting a deadline on a pipe fails only when the pipe is closed,
		// and then the line finds out when it writes.
		_ = l.c.inner.SetWriteDeadline(end)
		_ = l.c.inner.SetReadDeadline(time.Now()) // wake a reader of this end
	}
	return true
}

// setDeadline sets a deadline of the pipe, unless finish has set the last one:
// a reader that sets its own before every read would sleep through the close.
func (l *line) setDeadline(set func(time.Time) error, t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return opError("set", l.c.remote, net.ErrClosed)
	}
	if err := set(t); err != nil && l.c.isDead() {
		return opError("set", l.c.remote, l.c.err)
	}
	// A pipe refuses deadlines once the other side has closed. TCP does not, and
	// the close may be news that a stall holds back.
	return nil
}

// run delivers chunks when they are due until none is left.
func (l *line) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.mu.Lock()
		if len(l.chunks) == 0 {
			l.chunks = nil
			l.running = false
			closing := l.closing
			l.mu.Unlock()
			if closing {
				l.c.sever(net.ErrClosed)
			}
			return
		}
		next := l.chunks[0]
		l.mu.Unlock()

		if wait := time.Until(next.due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-l.c.dead:
			}
		}
		select {
		case <-l.c.dead:
			return // cut: what is under way is lost
		default:
		}
		if _, err := l.c.deliver(next.data, l.last.done()); err != nil {
			l.c.sever(err)
			return
		}
		l.mu.Lock()
		l.chunks = l.chunks[1:]
		l.size -= len(next.data)
		l.mu.Unlock()
		select {
		case l.room <- struct{}{}:
		default:
		}
	}
}
