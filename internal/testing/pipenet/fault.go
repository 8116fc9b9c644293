// SPDX-License-Identifier: Apache-2.0

package pipenet

import (
	"syscall"
	"time"
)

// A Direction says which bytes a fault hits.
type Direction uint8

const (
	// ToListener is what the dialling side writes.
	ToListener Direction = 1 << iota
	// ToDialer is what the accepting side writes.
	ToDialer
	// Both is every byte.
	Both = ToListener | ToDialer
)

// Indexes of the two directions in the tables below.
const (
	toListener = iota
	toDialer
	directions
)

// each calls f with the index of every direction in d.
func (d Direction) each(f func(i int)) {
	for i := range directions {
		if d&(1<<i) != 0 {
			f(i)
		}
	}
}

// faults are what the network does to its connections. Guarded by Network.mu.
type faults struct {
	refuse   bool
	stalled  [directions]chan struct{} // closed by Resume; nil while bytes pass
	delay    [directions]time.Duration
	cutAfter [directions]int64 // bytes that still pass; negative = no limit
}

func (f *faults) init() {
	for i := range f.cutAfter {
		f.cutAfter[i] = -1
	}
}

// Cut breaks every live connection, as a pulled cable and an expired keep-alive
// do: both sides get an error that wraps [syscall.ECONNRESET], bytes under way
// are lost. It returns how many connections it broke. New ones can be dialled.
func (n *Network) Cut() int {
	n.mu.Lock()
	ends := make([]*conn, 0, len(n.conns))
	count := 0
	for c := range n.conns {
		ends = append(ends, c)
		if c.out == toListener {
			count++
		}
	}
	n.mu.Unlock()
	sever(syscall.ECONNRESET, ends...)
	return count
}

// CutAfter lets n more bytes pass in direction d, counted over all connections. Then it cuts the
// connection that carries the next byte, in the middle of a write if need be. It happens once for
// each direction; a negative n takes the fault back.
func (n *Network) CutAfter(d Direction, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.each(func(i int) { n.faults.cutAfter[i] = max(bytes, -1) })
}

// Stall holds back all bytes in direction d until [Network.Resume]. The
// connections stay up: writes wait (or meet their deadline), and the other side
// does not learn of a close. Stalling [Both] makes them half-open.
func (n *Network) Stall(d Direction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.each(func(i int) {
		if n.faults.stalled[i] == nil {
			n.faults.stalled[i] = make(chan struct{})
		}
	})
}

// Resume ends a stall; what was held back goes through.
func (n *Network) Resume(d Direction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.each(func(i int) {
		if n.faults.stalled[i] != nil {
			close(n.faults.stalled[i])
			n.faults.stalled[i] = nil
		}
	})
}

// Delay makes every byte written in direction d from now on arrive by later,
// in order. The writer does not wait for it, so bandwidth is as before, up to
// 256 KiB under way. Zero ends the delay; what is under way keeps its own.
func (n *Network) Delay(d Direction, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.each(func(i int) { n.faults.delay[i] = max(by, 0) })
}

// Refuse makes Dial fail while on, as when the host is down. Live connections
// are not touched.
func (n *Network) Refuse(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.refuse = on
}

// gate returns the channel to wait for before a byte may pass, nil for none.
func (n *Network) gate(dir int) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults.stalled[dir]
}

func (n *Network) delayOf(dir int) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults.delay[dir]
}

// allow takes up to want bytes from the allowance of CutAfter. When it grants
// fewer, the connection is to be cut after them.
func (n *Network) allow(dir, want int) (granted int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := &n.faults.cutAfter[dir]
	switch {
	case *left < 0:
		return want
	case *left >= int64(want):
		*left -= int64(want)
		return want
	default:
		granted, *left = int(*left), -1
		return granted
	}
}
