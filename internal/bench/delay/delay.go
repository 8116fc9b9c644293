// SPDX-License-Identifier: Apache-2.0

// Package delay adds a round-trip time to the connections of an address.
package delay

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// A Link relays to an address, each byte half a round trip late. So round trips to the broker can
// be counted, independent of other work on the machine.
type Link struct {
	ln    net.Listener
	to    string
	delay time.Duration // one way
	ends  context.CancelFunc
	all   sync.WaitGroup
}

// New opens a link on a port of its own.
func New(to string, roundTrip time.Duration) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a link with a delay: %w", err)
	}
	ctx, ends := context.WithCancel(context.Background())
	l := &Link{ln: ln, to: to, delay: roundTrip / 2, ends: ends}
	l.all.Go(func() { l.accept(ctx) })
	return l, nil
}

// Address is where it listens.
func (l *Link) Address() string { return l.ln.Addr().String() }

// Close ends all connections and waits until they have. It may be called again.
func (l *Link) Close() {
	l.ends()
	_ = l.ln.Close() // ends accept
	l.all.Wait()
}

func (l *Link) accept(ctx context.Context) {
	for {
		near, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.all.Go(func() { l.join(ctx, near) })
	}
}

// join relays in both directions until either side, or ctx, ends.
func (l *Link) join(ctx context.Context, near net.Conn) {
	defer near.Close()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.to)
	if err != nil {
		return // like a broken network; the dialler reports it
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })() // ends their readers
	var both sync.WaitGroup
	both.Go(func() { l.pass(far, near) })
	both.Go(func() { l.pass(near, far) })
	both.Wait()
}

// A parcel is bytes in transit.
type parcel struct {
	bytes []byte
	due   time.Time
}

// pass copies from src to dst, and delays each piece.
func (l *Link) pass(dst, src net.Conn) {
	transit := make(chan parcel, 4096) // when full, it delays the sender, like a network
	var writing sync.WaitGroup
	writing.Go(func() {
		failed := false
		for p := range transit {
			if failed {
				continue
			}
			time.Sleep(time.Until(p.due))
			if _, err := dst.Write(p.bytes); err != nil {
				failed = true
				_ = src.Close() // ends the reads
			}
		}
		_ = dst.Close()
	})
	for {
		buf := make([]byte, 32<<10)
		n, err := src.Read(buf)
		if n > 0 {
			transit <- parcel{buf[:n], time.Now().Add(l.delay)}
		}
		if err != nil {
			break
		}
	}
	close(transit)
	writing.Wait()
}
