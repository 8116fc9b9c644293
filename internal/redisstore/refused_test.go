// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"overdue/internal/testing/redistest"
)

// A request that Redis refuses has not been done, and no caller gets a success for it: its keys are
// of another kind here.
func TestWhatRedisRefusesIsAnError(t *testing.T) {
	m := redistest.InMemory(t)
	lease := Lease{Item: item("x", noon)}
	wrong := func(s *Store) (*Companions, context.Context) {
		c := s.Companions()
		for _, k := range c.places {
			for _, key := range []string{k.due, k.leased, k.holders, k.records, k.dead} {
				must(t, m.Set(key, "x"))
			}
		}
		return c, t.Context()
	}
	for name, ask := range map[string]func(*Store) error{
		"Put":      func(s *Store) error { c, ctx := wrong(s); return c.Put(ctx, []Item{lease.Item}) },
		"Claim":    func(s *Store) error { c, ctx := wrong(s); _, _, err := c.Claim(ctx, noon, 1); return err },
		"Done":     func(s *Store) error { c, ctx := wrong(s); return c.Done(ctx, lease) },
		"GiveBack": func(s *Store) error { c, ctx := wrong(s); return c.GiveBack(ctx, lease) },
		"Bury":     func(s *Store) error { c, ctx := wrong(s); return c.Bury(ctx, lease, "reason", "") },
		"Withdraw": func(s *Store) error { c, ctx := wrong(s); _, err := c.Withdraw(ctx, []string{"x"}); return err },
		"Counts":   func(s *Store) error { c, ctx := wrong(s); _, err := c.Counts(ctx); return err },
		"Walk":     func(s *Store) error { c, ctx := wrong(s); return c.Walk(ctx, func(Item) bool { return true }) },
		"Dead":     func(s *Store) error { c, ctx := wrong(s); return c.Dead(ctx, func(Dead) bool { return true }) },
		"Groups.Add": func(s *Store) error {
			p := s.Groups()
			_, parts, _ := s.groupKeys("group")
			must(t, m.Set(parts, "x"))
			return p.Add(t.Context(), "group", "part", nil)
		},
		"Groups.Claim": func(s *Store) error {
			p := s.Groups()
			_, parts, _ := s.groupKeys("group")
			must(t, m.Set(parts, "x"))
			_, _, _, err := p.Claim(t.Context(), "group")
			return err
		},
		"Report": func(s *Store) error {
			v := s.View()
			processes, _, _, _ := v.keys(noon)
			must(t, m.Set(processes, "x"))
			return v.Report(t.Context(), Process{}, nil)
		},
	} {
		s := open(t, "redis://"+m.Addr())
		var refusal redis.Error
		if err := ask(s); !errors.As(err, &refusal) {
			t.Errorf("%s = %v, want what Redis says", name, err)
		}
	}
}

func TestAnAnswerOfAnotherFormIsAnError(t *testing.T) {
	address, _ := hostile(t, func(nc net.Conn) { _, _ = io.WriteString(nc, "*0\r\n") })
	s := open(t, address)
	if _, _, _, err := s.Groups().Claim(t.Context(), "group"); err == nil {
		t.Error("Claim of a page succeeded, want an error")
	}
	if _, _, err := s.Companions().Claim(t.Context(), noon, 1); !errors.Is(err, errAnswer) {
		t.Errorf("Claim of companions = %v, want %v", err, errAnswer)
	}
}

// An item that is brought while a worker learns that there is none does not lie until the worker
// would check again.
func TestWhatIsBroughtMeanwhileIsAskedForAtOnce(t *testing.T) {
	k := &place{}
	turn := k.turn()
	if !k.brings(5) {
		t.Error("the first that is brought is not before all else")
	}
	k.setNext(turn, time.Now().Add(time.Hour), 0, nil)
	if rests := k.rests(); rests != 0 {
		t.Errorf("the place rests for %v, want not at all", rests)
	}
	k.setNext(k.turn(), time.Now().Add(time.Hour), 5, nil)
	if rests := k.rests(); rests < time.Minute {
		t.Errorf("the place rests for %v when all is known, want about an hour", rests)
	}
	if k.brings(6) || !k.brings(4) {
		t.Error("what is due later is before all else, or what is due earlier is not")
	}
}

// Groups neither overlap nor leave any of the dead out.
func TestEachOfTheDeadIsShownOnce(t *testing.T) {
	m := redistest.InMemory(t)
	c := open(t, "redis://"+m.Addr()).Companions()
	const n = 2*deadPage + 3
	for i := range n {
		_, err := m.Push(c.places[0].dead, fmt.Sprintf(`{"reason":"%d"}`, i))
		must(t, err)
	}
	shown := map[string]int{}
	must(t, c.Dead(t.Context(), func(d Dead) bool { shown[d.Reason]++; return true }))
	for i := range n {
		if got := shown[fmt.Sprint(i)]; got != 1 {
			t.Errorf("dead %d is shown %d times, want once", i, got)
		}
	}
}

// ending is a connection that says its last and that it ends at once.
type ending struct{ net.Conn }

func (ending) Read(b []byte) (int, error) { return copy(b, "+"), io.EOF }

func TestABoundedConnectionEndsWithWhatItSaidLast(t *testing.T) {
	c := &boundedConn{Conn: ending{}}
	b := make([]byte, 8)
	if n, err := c.Read(b); n != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("Read = %d, %v, want 1 and the end", n, err)
	}
}
