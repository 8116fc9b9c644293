// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrSpent is wrapped by what Spend and May return when a connection wants more than it
	// may have before its first good token.
	ErrSpent = errors.New("too much for a connection that has put no valid token")
	// ErrCrowded is why a connection was cut that has put no valid token: others came, and there was no
	// room for all of them.
	ErrCrowded = errors.New("no valid token was put before others needed the room")
)

// FirstTokenTimeout is how long a connection of AMQP may take from its open to its first good token. It is
// Service Bus's: "AMQP 1.0 in Azure Service Bus protocol guide", claims-based authorization.
const FirstTokenTimeout = 20 * time.Second

// Limits bound what strangers may cost. The zero value of each is the default stated.
type Limits struct {
	Bytes    int64 // of one stranger: all that it sends, and what is reckoned for what it has; default 256 KiB
	Sessions int   // of one stranger at a time; default 16
	Links    int   // of one stranger at a time, refused ones that it has not detached included; default 16
	Total    int64 // bytes of all strangers together; default 32 MiB
}

// What is reckoned for what a stranger has, in bytes: about what it costs beside what the peer has sent.
const (
	ConnCost     = 16 << 10 // two goroutines and their buffers
	SessionCost  = 4 << 10
	LinkCost     = 1 << 10
	UpstreamCost = 32 << 10 // a connection of its own to the namespace
)

// Strangers are the connections of a server that have yet to prove anything: those without a first good token. Each
// has a small budget, and all of them together have one.
//
// When that is full, a stranger is cut: never a connection that has proven itself, and never the newcomer, so nobody
// keeps others out by sitting in the room. It is the oldest one from the address that spends most, by whole budgets of
// one connection. So the connections of one attacker push out each other before any from elsewhere. Where all come
// from one address, a client has as long for its token as others need to fill the whole room. The methods are safe for
// concurrent use.
type Strangers struct {
	limits Limits

	mu      sync.Mutex
	spent   int64
	number  uint64 // of the last that came
	origins map[netip.Addr]*origin
}

// An origin is where strangers come from: an IPv4 address, a /64 of IPv6, or all that have no such address.
type origin struct {
	addr   netip.Addr
	spent  int64
	guests list.List // of *Guest, the oldest first
}

// NewStrangers returns a room for strangers that nobody is in.
func NewStrangers(l Limits) *Strangers {
	l.Bytes = cmp.Or(max(l.Bytes, 0), 256<<10)
	l.Sessions = cmp.Or(max(l.Sessions, 0), 16)
	l.Links = cmp.Or(max(l.Links, 0), 16)
	l.Total = max(cmp.Or(max(l.Total, 0), 32<<20), l.Bytes)
	return &Strangers{limits: l, origins: make(map[netip.Addr]*origin)}
}

// A Guest is one connection's place among the strangers. A nil Guest is one that has nothing to prove. Its methods
// are safe for concurrent use.
type Guest struct {
	room   *Strangers
	known  atomic.Bool // it is no stranger any more, or is gone: nothing is counted
	origin *origin
	number uint64 // rises with every guest

	// Guarded by room.mu.
	at    *list.Element
	spent int64
	cut   func()
	why   error
}

// Enter takes a connection in, and cuts others where there is no room. Leave has to follow. The connection is
// closed when it is its own turn, unless Ends says otherwise.
func (s *Strangers) Enter(nc net.Conn) *Guest {
	g := &Guest{room: s, cut: func() { nc.Close() }}
	addr := originOf(nc.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.origins[addr]
	if o == nil {
		o = &origin{addr: addr}
		s.origins[addr] = o
	}
	s.number++
	g.origin, g.number, g.at = o, s.number, o.guests.PushBack(g)
	s.addLocked(g, ConnCost)
	return g
}

// EnterOf is the guest that nc carries already, see GuestOf, or a new one of s. With a nil s it is nobody.
func (s *Strangers) EnterOf(nc net.Conn) *Guest {
	if g := GuestOf(nc); g != nil || s == nil {
		return g
	}
	return s.Enter(nc)
}

// GuestOf is the guest that nc carries, through whatever lies around it: a connection with a method Guest has one,
// and one with a method NetConn, such as tls.Conn, may have one below. nil: there is none.
func GuestOf(nc net.Conn) *Guest {
	for nc != nil {
		switch c := nc.(type) {
		case interface{ Guest() *Guest }:
			return c.Guest()
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// originOf is where a peer counts as coming from.
func originOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		// Whoever has one address of IPv6 has the 2⁶⁴ beside it.
		return netip.PrefixFrom(ip, 64).Masked().Addr()
	}
	return ip
}

// addLocked reckons n bytes for g, and cuts strangers until what is left fits. That may be g itself, but never one that
// has just come: it is the newest, and alone where it comes from or not the oldest there.
func (s *Strangers) addLocked(g *Guest, n int64) {
	g.spent += n
	g.origin.spent += n
	s.spent += n
	for s.spent > s.limits.Total && s.cutLocked() {
	}
}

// cutLocked cuts the stranger whose turn it is, and reports whether there was one.
func (s *Strangers) cutLocked() bool {
	var victim *Guest
	var most int64
	for _, o := range s.origins {
		oldest := o.guests.Front().Value.(*Guest)
		// In whole budgets, so that a client which has got further than those that merely wait does not count for more.
		weight := o.spent / s.limits.Bytes
		if victim == nil || weight > most || weight == most && oldest.number < victim.number {
			victim, most = oldest, weight
		}
	}
	if victim == nil {
		return false
	}
	victim.why = ErrCrowded
	s.removeLocked(victim)
	go victim.cut() // which may lock what its connection holds
	return true
}

// Cut cuts the stranger whose turn it is, for who needs its descriptor or its place more, and reports whether there was
// one. A nil s has none.
func (s *Strangers) Cut() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutLocked()
}

// Spent is how many bytes are reckoned for all strangers together.
func (s *Strangers) Spent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spent
}

// removeLocked forgets g.
func (s *Strangers) removeLocked(g *Guest) {
	if g.known.Swap(true) {
		return
	}
	s.spent -= g.spent
	o := g.origin
	o.spent -= g.spent
	o.guests.Remove(g.at)
	if o.guests.Len() == 0 {
		delete(s.origins, o.addr)
	}
}

// Stranger reports whether g has yet to prove something.
func (g *Guest) Stranger() bool { return g != nil && !g.known.Load() }

// Admit says that the connection has shown a good token, or that it needs none. Nothing bounds it here any more.
func (g *Guest) Admit() { g.Leave() }

// Leave follows the end of the connection.
func (g *Guest) Leave() {
	if !g.Stranger() {
		return
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	g.room.removeLocked(g)
}

// Ends says how the connection is ended when it is its turn. It is called from a goroutine of its own.
func (g *Guest) Ends(cut func()) {
	if !g.Stranger() {
		return
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	g.cut = cut
}

// Why is ErrCrowded once the connection was cut to make room, nil before.
func (g *Guest) Why() error {
	if g == nil {
		return nil
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	return g.why
}

// Spend reckons n more bytes for a stranger. The error wraps ErrSpent when these are more than it may have.
func (g *Guest) Spend(n int) error {
	if !g.Stranger() {
		return nil
	}
	s := g.room
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case g.known.Load():
		return nil // while the lock was waited for
	case g.spent+int64(n) > s.limits.Bytes:
		return fmt.Errorf("%w: at most %d bytes", ErrSpent, s.limits.Bytes)
	}
	s.addLocked(g, int64(n))
	return nil
}

// Session reckons the cost of a further session for a stranger, of which it has so many with it. The error wraps ErrSpent when these are
// more than it may have.
func (g *Guest) Session(have int) error {
	if g.Stranger() && have > g.room.limits.Sessions {
		return fmt.Errorf("%w: at most %d sessions", ErrSpent, g.room.limits.Sessions)
	}
	return g.Spend(SessionCost)
}

// Link is Session for links.
func (g *Guest) Link(have int) error {
	if g.Stranger() && have > g.room.limits.Links {
		return fmt.Errorf("%w: at most %d links", ErrSpent, g.room.limits.Links)
	}
	return g.Spend(LinkCost)
}
