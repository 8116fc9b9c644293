// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
)

// fromConn is a connection from somewhere.
type fromConn struct {
	net.Conn
	from string
}

func (c fromConn) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(c.from, "1"))
	if err != nil {
		panic(err)
	}
	return addr
}

// A crowd is quotas by name, and the names of those that were cut.
type crowd struct {
	*testing.T
	set    *Unauthenticated
	quotas map[string]*Quota
}

func newCrowd(t *testing.T, l Limits) *crowd {
	return &crowd{t, NewUnauthenticated(l), map[string]*Quota{}}
}

func (c *crowd) enter(name, from string) {
	near, far := net.Pipe()
	c.Cleanup(func() { near.Close(); far.Close() })
	c.quotas[name] = c.set.Enter(fromConn{far, from})
}

func (c *crowd) wantCut(names ...string) {
	c.Helper()
	var cut []string
	for name, g := range c.quotas {
		if errors.Is(g.Why(), ErrEvicted) {
			cut = append(cut, name)
		}
	}
	if slices.Sort(cut); !slices.Equal(cut, names) {
		c.Errorf("cut %q, want %q", cut, names)
	}
}

func TestTheOldestConnectionIsEvictedIfAllComeFromOneAddress(t *testing.T) {
	c := newCrowd(t, Limits{Bytes: 10 * ConnCost, Total: 10 * ConnCost})
	for i := range 10 {
		c.enter(fmt.Sprint(i), "192.0.2.1")
	}
	c.wantCut()
	c.enter("one more", "192.0.2.1")
	c.wantCut("0")
	c.quotas["1"].Admit()
	c.enter("and in the place of one that is known", "192.0.2.1")
	c.wantCut("0")
	if err := c.quotas["one more"].Spend(ConnCost); err != nil {
		t.Errorf("Spend = %v, want nil", err)
	}
	c.wantCut("0", "2")
	for _, g := range c.quotas {
		g.Leave()
	}
	if got := c.set.Spent(); got != 0 {
		t.Errorf("%d bytes are charged to an empty set, want 0", got)
	}
	if n := len(c.set.origins); n != 0 {
		t.Errorf("%d origins are in an empty set, want none", n)
	}
}

// Connections that fill the set from one address evict each other, not older ones from elsewhere.
func TestTheAddressThatSpendsMostLosesConnections(t *testing.T) {
	for name, from := range map[string]func(i int) string{
		"one address":     func(int) string { return "192.0.2.1" },
		"one /64 of IPv6": func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, Limits{Bytes: 2 * ConnCost, Total: 20 * ConnCost})
			c.enter("a client", "198.51.100.7")
			c.enter("another", "2001:db8:0:1::1")
			for i := range 30 {
				c.enter(fmt.Sprintf("%02d", i), from(i))
			}
			var want []string
			for i := range 12 {
				want = append(want, fmt.Sprintf("%02d", i))
			}
			c.wantCut(want...)
		})
	}
}

func TestOnlyUnauthenticatedConnectionsHaveLimits(t *testing.T) {
	c := newCrowd(t, Limits{Bytes: 100 << 10, Sessions: 2, Links: 3})
	c.enter("g", "192.0.2.1")
	g := c.quotas["g"]
	for what, err := range map[string]error{
		"a third session": g.Session(3), "a fourth link": g.Link(4), "too many bytes": g.Spend(100<<10 - ConnCost + 1),
	} {
		if !errors.Is(err, ErrQuota) {
			t.Errorf("%s = %v, want ErrQuota", what, err)
		}
	}
	for what, err := range map[string]error{
		"a second session": g.Session(2), "a third link": g.Link(3), "all the bytes": g.Spend(100<<10 - ConnCost - SessionCost - LinkCost),
	} {
		if err != nil {
			t.Errorf("%s = %v, want nil", what, err)
		}
	}
	g.Admit()
	for what, err := range map[string]error{"sessions": g.Session(1000), "links": g.Link(1000), "bytes": g.Spend(1 << 30)} {
		if err != nil {
			t.Errorf("many %s of a known connection = %v, want nil", what, err)
		}
	}
}

func TestChargedBytesAreReturned(t *testing.T) {
	c := newCrowd(t, Limits{})
	c.enter("a", "192.0.2.1")
	c.enter("b", "192.0.2.1")
	if err := errors.Join(c.quotas["a"].Spend(1000), c.quotas["a"].Session(1), c.quotas["a"].Link(1)); err != nil {
		t.Fatal(err)
	}
	if got, want := c.set.Spent(), int64(2*ConnCost+1000+SessionCost+LinkCost); got != want {
		t.Errorf("%d bytes are charged, want %d", got, want)
	}
	c.quotas["a"].Leave()
	c.quotas["a"].Leave()
	if got := c.set.Spent(); got != ConnCost {
		t.Errorf("%d bytes are charged when one has left, want %d", got, ConnCost)
	}
}

func TestAFullTableEvictsAnUnauthenticatedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := NewUnauthenticated(Limits{})
		table := New[*Quota]("test", 2, nil)
		table.Guard(set)
		ended := make(chan *Quota, 3)
		enter := func() (*Quota, error) {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close(); far.Close() })
			var entered *Quota
			g, err := table.Enter(far, func(uint64) *Quota {
				entered = set.Enter(far)
				return entered
			})
			if err == nil {
				g.Ends(func() {
					table.Leave(g)
					ended <- g
				})
			}
			return g, err
		}
		known, err1 := enter()
		known.Admit()
		oldest, err2 := enter()
		last, err3 := enter()
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatalf("Enter = %v, want an eviction", err)
		}
		if g := <-ended; g != oldest {
			t.Error("the wrong connection was evicted")
		}
		last.Admit()
		if _, err := enter(); !errors.Is(err, ErrTooMany) {
			t.Errorf("Enter where all are known = %v, want ErrTooMany", err)
		}
	})
}

func TestALackOfDescriptorsEvictsAnUnauthenticatedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := NewUnauthenticated(Limits{})
		near, far := net.Pipe()
		defer near.Close()
		g := set.Enter(far)
		table := New[net.Conn]("test", 4, nil)
		table.Guard(set)
		ln := newFlaky(&net.OpError{Op: "accept", Err: syscall.EMFILE})
		served := make(chan error, 1)
		go func() { served <- table.Serve(ln, nil) }()
		synctest.Wait()
		if !errors.Is(g.Why(), ErrEvicted) {
			t.Errorf("Why = %v, want ErrEvicted", g.Why())
		}
		if _, err := near.Read(make([]byte, 1)); err == nil {
			t.Error("the unauthenticated connection is open")
		}
		table.Close()
		<-served
	})
}
