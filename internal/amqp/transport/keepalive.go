// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync/atomic"
	"time"

	"overdue/internal/amqp"
)

// leastTick bounds the timer, so that it never spins even if a clock jumps.
const leastTick = time.Millisecond

// keepAlive sends an empty frame after interval without output, and ends the wait of the reader for
// a peer that was silent for too long. The timer is a wake-up, armed for the earlier of both.
type keepAlive struct {
	interval time.Duration // 0 = the peer asks for none
	timer    *time.Timer   // nil until Opened
	began    time.Time
	waiting  atomic.Int64 // since when the reader waits for input, counted from began; 0 = it does not
}

// waits notes that the reader waits for input, or that it does not. While it waits for room in an
// output instead, it cannot hear the peer.
func (k *keepAlive) waits(yes bool) {
	var since int64
	if yes && !k.began.IsZero() {
		since = max(int64(time.Since(k.began)), 1)
	}
	k.waiting.Store(since)
}

// Opened applies the peer's open, after ours has been queued.
func (c *Conn) Opened() {
	c.MaxFrame = c.Peer.MaxFrameSize
	// Half of the time-out, so that one late keep-alive is not the end.
	c.interval = time.Duration(c.Peer.IdleTimeout) * time.Millisecond / 2
	c.State = Open
	c.raw = c.socket.Exists()
	_ = c.NetConn.SetReadDeadline(time.Time{}) // a failure shows in the read
	c.began = time.Now()
	c.wrote = c.began
	first := c.cfg.Silence
	if c.interval > 0 {
		first = min(first, c.interval)
	}
	c.timer = time.AfterFunc(first, c.tick)
}

func (k *keepAlive) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

func (c *Conn) tick() {
	c.owner.Lock()
	defer c.owner.Unlock()
	if c.State != Open {
		return
	}
	next := c.cfg.Silence
	now := time.Now()
	if since := c.waiting.Load(); since > 0 {
		next -= now.Sub(c.began) - time.Duration(since)
	}
	if next <= 0 {
		_ = c.NetConn.SetReadDeadline(time.Unix(1, 0)) // the read returns; a failure shows in it
		return
	}
	if c.interval > 0 {
		left := c.interval - now.Sub(c.wrote)
		if left <= 0 {
			left = c.interval
			if c.Queued() == 0 && !c.writing {
				out := c.buffer()
				out.b = amqp.AppendFrame(out.b, 0, nil, nil)
				c.Signal()
			}
		}
		next = min(next, left)
	}
	c.timer.Reset(max(next, leastTick))
}
