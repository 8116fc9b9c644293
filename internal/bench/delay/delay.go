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
	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil when the link is closed
}

// New opens a link on a port of its own.
func New(to string, roundTrip time.Duration) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a link with a delay: %w", err)
	}
	ctx, ends := context.WithCancel(context.Background())
	w := &Link{ln: ln, to: to, delay: roundTrip / 2, ends: ends,
		conns: map[net.Conn]struct{}{}}
	w.all.Go(func() { w.accept(ctx) })
	return w, nil
}

// Address is where it listens.
func (w *Link) Address() string { return w.ln.Addr().String() }

// Close ends all connections and waits until they have. It may be called again.
func (w *Link) Close() {
	w.ends()
	_ = w.ln.Close() // ends accept
	w.mu.Lock()
	conns := w.conns
	w.conns = nil
	w.mu.Unlock()
	for c := range conns {
		_ = c.Close() // ends its readers
	}
	w.all.Wait()
}

// keep records a connection, to close it with the link.
func (w *Link) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		return false
	}
	w.conns[c] = struct{}{}
	return true
}

func (w *Link) accept(ctx context.Context) {
	for {
		near, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.all.Go(func() { w.join(ctx, near) })
	}
}

// join relays in both directions until either side ends.
func (w *Link) join(ctx context.Context, near net.Conn) {
	defer near.Close()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.to)
	if err != nil {
		return // like a broken network; the dialler reports it
	}
	defer far.Close()
	if !w.keep(near) || !w.keep(far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { w.pass(far, near) })
	both.Go(func() { w.pass(near, far) })
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, near)
	delete(w.conns, far)
}

// A parcel is bytes in transit.
type parcel struct {
	bytes []byte
	due   time.Time
}

// pass copies from src to dst, and delays each piece.
func (w *Link) pass(dst, src net.Conn) {
	under := make(chan parcel, 4096) // in transit; when full, it delays the sender, like a network
	var writing sync.WaitGroup
	writing.Go(func() {
		failed := false
		for p := range under {
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
			under <- parcel{buf[:n], time.Now().Add(w.delay)}
		}
		if err != nil {
			break
		}
	}
	close(under)
	writing.Wait()
}
