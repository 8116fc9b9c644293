// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"

	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

// opener opens the store at an address, as the operator client does.
func opener(t *testing.T, address string) func() (*redisstore.Store, error) {
	t.Helper()
	a, err := redisstore.ParseAddress("redis://" + address)
	if err != nil {
		t.Fatal(err)
	}
	return func() (*redisstore.Store, error) {
		return redisstore.Open(redisstore.Config{Address: a, Fleet: []string{host}, Slack: 20})
	}
}

func TestRedisIsExaminedAsItIs(t *testing.T) {
	r := redistest.Start(t)
	examined := func(keeps bool) string {
		cfg := &Redis{Hosts: []string{r.Addr}, Setting: "redis", Keeps: keeps, Open: opener(t, r.Addr)}
		return strings.Join(checks((&examiner{cfg: Config{Redis: cfg}}).redis(t.Context())), ", ")
	}
	if got, want := examined(false), "ok reachable, ok rights, ok fleet"; got != want {
		t.Errorf("findings %s, want %s", got, want)
	}
	r.Must("CONFIG", "SET", "appendonly", "no")
	if got, want := examined(true), "ok reachable, ok rights, error companions, ok fleet"; got != want {
		t.Errorf("findings of a Redis that forgets when it ends: %s, want %s", got, want)
	}
	r.Must("CONFIG", "SET", "appendonly", "yes")
	if got, want := examined(true), "ok reachable, ok rights, ok companions, ok fleet"; got != want {
		t.Errorf("findings of a Redis that keeps what it gets: %s, want %s", got, want)
	}
}

func TestARedisThatDoesNotAnswerIsReported(t *testing.T) {
	m := redistest.InMemory(t)
	address := m.Addr()
	m.Close()
	broken := func() (*redisstore.Store, error) { return nil, errors.New("no roots") }
	for name, open := range map[string]func() (*redisstore.Store, error){"gone": opener(t, address), "broken": broken} {
		x := &examiner{cfg: Config{Redis: &Redis{Hosts: []string{address}, Setting: "redis", Open: open}}}
		if got := checks(x.redis(t.Context())); len(got) != 1 || got[0] != "warning reachable" {
			t.Errorf("findings of one that is %s: %q, want that it cannot be reached", name, got)
		}
	}
}
