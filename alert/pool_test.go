// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

// pair is two processes with groups of one sink.
func pair(t *testing.T, addr string, act func(a, b *groupScene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pager{began: time.Now()}
		var both []*groupScene
		for range 2 {
			s := &groupScene{T: t, o: &outbox{t: t}, p: p, change: func(c *GroupsConfig) {
				if addr != "" {
					c.Pool = pagesOf(t, addr)
				}
			}}
			s.start()
			both = append(both, s)
		}
		act(both[0], both[1])
		for _, s := range both {
			s.stop()
		}
		time.Sleep(time.Hour) // digests that are left on the outbox are delivered to nobody
	})
}

func pagesOf(t *testing.T, addr string) Pool {
	t.Helper()
	a, err := redisstore.ParseAddress("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := redisstore.Open(redisstore.Config{Address: a, Fleet: []string{"n"}, Slack: 20, Connections: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()               // its server may be gone
		time.Sleep(2 * time.Second) // then its pool checks every second whether it is back
	})
	return s.Groups()
}

// Two processes have events of one group. One notification reports all of them.
func TestProcessesSendOneNotification(t *testing.T) {
	m := redistest.InMemory(t)
	pair(t, m.Addr(), func(a, b *groupScene) {
		a.miss("orders", 3)
		b.miss("orders", 4)
		a.pass(time.Minute)
		a.want("30s orders firing 7 of 7")
		b.miss("orders", 2)
		a.miss("orders", 1)
		a.pass(5 * time.Minute)
		a.want("30s orders firing 7 of 7", "5m31s orders firing 3 of 10")
		a.pass(20 * time.Minute)
		a.want("30s orders firing 7 of 7", "5m31s orders firing 3 of 10", "11m0s orders resolved 0 of 10")
		if a.o.left+b.o.left != 0 {
			t.Errorf("%d and %d digests are left", a.o.left, b.o.left)
		}
		b.miss("orders", 1)
		a.pass(time.Minute)
		if said := a.p.said(); len(said) != 4 {
			t.Errorf("pages %q, want one more for the group that fires again", said)
		}
	})
}

// Without Redis, and from when it is gone, each process pages for itself, and nothing goes
// unevents.
func TestProcessesWithoutAPoolSendTheirOwnNotifications(t *testing.T) {
	for name, fail := range map[string]func(m *miniredis.Miniredis) (addr string, gone func()){
		"none":    func(*miniredis.Miniredis) (string, func()) { return "", func() {} },
		"gone":    func(m *miniredis.Miniredis) (string, func()) { return m.Addr(), m.Close },
		"refuses": func(m *miniredis.Miniredis) (string, func()) { return m.Addr(), func() { m.SetError("LOADING") } },
	} {
		t.Run(name, func(t *testing.T) {
			addr, gone := fail(redistest.InMemory(t))
			pair(t, addr, func(a, b *groupScene) {
				gone()
				a.miss("orders", 3)
				b.miss("orders", 4)
				a.pass(time.Minute)
				a.want("30s orders firing 3 of 3", "30s orders firing 4 of 4")
				a.pass(30 * time.Minute)
				if a.o.left+b.o.left != 0 {
					t.Errorf("%d and %d digests are left", a.o.left, b.o.left)
				}
			})
		})
	}
}

func TestNotificationsContinueAfterRedisForgetsThem(t *testing.T) {
	m := redistest.InMemory(t)
	pair(t, m.Addr(), func(a, b *groupScene) {
		a.miss("orders", 3)
		a.pass(time.Minute)
		m.FlushAll()
		b.miss("orders", 4)
		a.pass(time.Minute)
		a.want("30s orders firing 3 of 3", "1m30s orders firing 4 of 4")
		a.pass(30 * time.Minute)
		if a.o.left+b.o.left != 0 {
			t.Errorf("%d and %d digests are left", a.o.left, b.o.left)
		}
	})
}

// While a sink is down, the parts of other processes are kept as well and sent later.
func TestASinkThatIsDownGetsTheEventsOfAllProcesses(t *testing.T) {
	m := redistest.InMemory(t)
	pair(t, m.Addr(), func(a, b *groupScene) {
		a.p.fail(errors.New("down"))
		a.miss("orders", 3)
		b.miss("orders", 4)
		a.pass(2 * time.Minute)
		a.p.fail(nil)
		a.pass(10 * time.Minute)
		events := 0
		a.p.mu.Lock()
		for _, page := range a.p.pages {
			events += page.Count
		}
		a.p.mu.Unlock()
		if events != 7 {
			t.Errorf("notifications %q have %d events, want 7", a.p.said(), events)
		}
		a.pass(30 * time.Minute)
		if a.o.left+b.o.left != 0 {
			t.Errorf("%d and %d digests are left", a.o.left, b.o.left)
		}
	})
}

// fail has the pager fail from now on; nil: no longer.
func (p *pager) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}
