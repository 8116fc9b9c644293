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
	// ErrQuota is wrapped by Spend, Session and Link when a connection exceeds its quota.
	ErrQuota = errors.New("too much for a connection without a valid token")
	// ErrEvicted is why an unauthenticated connection was closed: the set was full, and another came.
	ErrEvicted = errors.New("no valid token arrived before other connections needed the place")
)

// FirstTokenTimeout bounds the time from the open of an AMQP connection to its first valid token,
// as in Service Bus: "AMQP 1.0 in Azure Service Bus protocol guide", claims-based authorization.
const FirstTokenTimeout = 20 * time.Second

// Limits bound the cost of unauthenticated connections. Zero means the default.
type Limits struct {
	Bytes    int64 // of one connection: all that it sends, and the costs below; default 256 KiB
	Sessions int   // of one connection at a time; default 16
	Links    int   // of one connection at a time, with refused ones not yet detached; default 16
	Total    int64 // bytes of all connections; default 32 MiB
}

// Costs in bytes, about what each takes in addition to the bytes that the peer sends.
const (
	ConnCost     = 16 << 10 // two goroutines and their buffers
	SessionCost  = 4 << 10
	LinkCost     = 1 << 10
	UpstreamCost = 32 << 10 // a separate connection to the namespace
)

// Unauthenticated is the set of connections without a valid token so far. Each has a small quota,
// and all of them together have one.
//
// When the common quota is spent, the set evicts a connection: never one with a valid token, and
// never the newcomer, so that idle connections cannot keep others out. It evicts the oldest
// connection of the address that spends most, counted in whole quotas. So the connections of one
// attacker evict each other before any from elsewhere. If all come from one address, a client has
// as much time for its token as others need to fill the whole set. The methods are safe for
// concurrent use.
type Unauthenticated struct {
	limits Limits

	mu      sync.Mutex
	spent   int64
	number  uint64 // of the latest connection
	origins map[netip.Addr]*origin
}

// An origin is an IPv4 address, a /64 of IPv6, or all connections without such an address.
type origin struct {
	addr   netip.Addr
	spent  int64
	quotas list.List // of *Quota, oldest first
}

// NewUnauthenticated returns an empty set.
func NewUnauthenticated(l Limits) *Unauthenticated {
	l.Bytes = cmp.Or(max(l.Bytes, 0), 256<<10)
	l.Sessions = cmp.Or(max(l.Sessions, 0), 16)
	l.Links = cmp.Or(max(l.Links, 0), 16)
	l.Total = max(cmp.Or(max(l.Total, 0), 32<<20), l.Bytes)
	return &Unauthenticated{limits: l, origins: make(map[netip.Addr]*origin)}
}

// A Quota is what one unauthenticated connection may spend. A nil Quota has no limits. The methods
// are safe for concurrent use.
type Quota struct {
	set    *Unauthenticated
	known  atomic.Bool // authenticated, or closed: nothing is counted
	origin *origin
	number uint64 // rises with each connection

	// Guarded by set.mu.
	at    *list.Element
	spent int64
	cut   func()
	why   error
}

// Enter adds a connection and evicts others if the common quota is spent. The caller calls Leave
// later. Eviction closes nc, unless Ends sets something else.
func (s *Unauthenticated) Enter(nc net.Conn) *Quota {
	g := &Quota{set: s, cut: func() { nc.Close() }}
	addr := originOf(nc.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.origins[addr]
	if o == nil {
		o = &origin{addr: addr}
		s.origins[addr] = o
	}
	s.number++
	g.origin, g.number, g.at = o, s.number, o.quotas.PushBack(g)
	s.addLocked(g, ConnCost)
	return g
}

// EnterOrJoin returns the quota that nc carries already, see QuotaOf, or a new one of s. With a nil
// s it returns nil.
func (s *Unauthenticated) EnterOrJoin(nc net.Conn) *Quota {
	if g := QuotaOf(nc); g != nil || s == nil {
		return g
	}
	return s.Enter(nc)
}

// QuotaOf returns the quota that nc carries, or nil. A connection carries one if it has a method
// Quota, or if it has a method NetConn, as tls.Conn has, and the connection below carries one.
func QuotaOf(nc net.Conn) *Quota {
	for nc != nil {
		switch c := nc.(type) {
		case interface{ Quota() *Quota }:
			return c.Quota()
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// originOf returns the origin of a peer.
func originOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		// A peer with one IPv6 address usually has all 2⁶⁴ of its subnet.
		return netip.PrefixFrom(ip, 64).Masked().Addr()
	}
	return ip
}

// addLocked charges n bytes to g and evicts until the rest fits. It may evict g, but never a
// newcomer, which is not the oldest of its origin unless it is alone there.
func (s *Unauthenticated) addLocked(g *Quota, n int64) {
	g.spent += n
	g.origin.spent += n
	s.spent += n
	for s.spent > s.limits.Total && s.cutLocked() {
	}
}

// cutLocked evicts a connection, and reports whether the set had one.
func (s *Unauthenticated) cutLocked() bool {
	var victim *Quota
	var most int64
	for _, o := range s.origins {
		oldest := o.quotas.Front().Value.(*Quota)
		// Whole quotas: a client that got further than idle ones must not weigh more.
		weight := o.spent / s.limits.Bytes
		if victim == nil || weight > most || weight == most && oldest.number < victim.number {
			victim, most = oldest, weight
		}
	}
	if victim == nil {
		return false
	}
	victim.why = ErrEvicted
	s.removeLocked(victim)
	go victim.cut() // it may take the connection's locks
	return true
}

// Cut evicts a connection to free its descriptor or its place in a table, and reports whether there
// was one. A nil set has none.
func (s *Unauthenticated) Cut() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutLocked()
}

// Spent returns the bytes charged to all connections.
func (s *Unauthenticated) Spent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spent
}

// removeLocked removes g from the set.
func (s *Unauthenticated) removeLocked(g *Quota) {
	if g.known.Swap(true) {
		return
	}
	s.spent -= g.spent
	o := g.origin
	o.spent -= g.spent
	o.quotas.Remove(g.at)
	if o.quotas.Len() == 0 {
		delete(s.origins, o.addr)
	}
}

// Limited reports whether g still has limits: the connection is open and unauthenticated.
func (g *Quota) Limited() bool { return g != nil && !g.known.Load() }

// Admit lifts the limits: the connection has shown a valid token, or needs none.
func (g *Quota) Admit() { g.Leave() }

// Leave follows the end of the connection.
func (g *Quota) Leave() {
	if !g.Limited() {
		return
	}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	g.set.removeLocked(g)
}

// Ends sets how to end the connection on eviction. The set calls it in a goroutine of its own.
func (g *Quota) Ends(cut func()) {
	if !g.Limited() {
		return
	}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	g.cut = cut
}

// Why returns ErrEvicted after eviction, and nil before.
func (g *Quota) Why() error {
	if g == nil {
		return nil
	}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	return g.why
}

// Spend charges n bytes. The error wraps ErrQuota if they exceed the quota.
func (g *Quota) Spend(n int) error {
	if !g.Limited() {
		return nil
	}
	s := g.set
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case g.known.Load():
		return nil // admitted while this call waited for the lock
	case g.spent+int64(n) > s.limits.Bytes:
		return fmt.Errorf("%w: at most %d bytes", ErrQuota, s.limits.Bytes)
	}
	s.addLocked(g, int64(n))
	return nil
}

// Session charges a further session, the have-th. The error wraps ErrQuota if it exceeds the quota.
func (g *Quota) Session(have int) error {
	if g.Limited() && have > g.set.limits.Sessions {
		return fmt.Errorf("%w: at most %d sessions", ErrQuota, g.set.limits.Sessions)
	}
	return g.Spend(SessionCost)
}

// Link is Session for links.
func (g *Quota) Link(have int) error {
	if g.Limited() && have > g.set.limits.Links {
		return fmt.Errorf("%w: at most %d links", ErrQuota, g.set.limits.Links)
	}
	return g.Spend(LinkCost)
}
