// SPDX-License-Identifier: Apache-2.0

// Package delay lengthens the way to an address.
package delay

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// A Link relays to an address, each byte half a round trip after it came. So round trips
// to the broker can be counted, whatever else the machine does.
type Link struct {
	ln    net.Listener
	to    string
	delay time.Duration // one way

	ends  context.CancelFunc
	all   sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil when the wire is closed
}

// New opens a wire on a port of its own.
func New(to string, roundTrip time.Duration) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a wire with a delay: %w", err)
	}
	ctx, ends := context.WithCancel(context.Background())
	w := &Link{ln: ln, to: to, delay: roundTrip / 2, ends: ends,
		conns: map[net.Conn]struct{}{}}
	w.all.Go(func() { w.accept(ctx) })
	return w, nil
}

func (w *Link) Address() string { return w.ln.Addr().String() }

// Close ends all connections and waits until they have. It may be called again.
func (w *Link) Close() {
	w.ends()
	_ = w.ln.Close() // accept ends with it
	w.mu.Lock()
	conns := w.conns
	w.conns = nil
	w.mu.Unlock()
	for c := range conns {
		_ = c.Close() // what reads from it ends
	}
	w.all.Wait()
}

// keep remembers a connection, to close it with the wire.
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

// join passes on both ways until either side ends.
func (w *Link) join(ctx context.Context, near net.Conn) {
	defer near.Close()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.to)
	if err != nil {
		return // as a network that leads nowhere; who dialled says so
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

// A parcel is bytes that are on their way.
type parcel struct {
	bytes []byte
	due   time.Time
}

// pass copies from src to dst, each piece as long after it came as the wire is.
func (w *Link) pass(dst, src net.Conn) {
	under := make(chan parcel, 4096) // way; a full one holds the sender up, as a network does
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
				_ = src.Close() // so that nothing more is read
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
