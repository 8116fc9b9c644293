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

func TestRedisIsAskedWhatItIsLike(t *testing.T) {
	r := redistest.Start(t)
	r.Must("CONFIG", "SET", "maxmemory", "100mb")
	ask, keep := AskRedis(opener(t, r.Addr)), KeepsCompanions(opener(t, r.Addr))
	state, err := ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Servers) != 1 || state.Servers[0].Memory != 100<<20 || state.RoundTrip <= 0 || len(state.Denied) > 0 || state.Refusal != "" {
		t.Errorf("state %+v, want one server of 100 MiB that takes every command", state)
	}
	r.Must("CONFIG", "SET", "appendonly", "no")
	if err := keep(t.Context()); err == nil || !strings.Contains(err.Error(), "append") {
		t.Errorf("a Redis that forgets when it ends: %v, want what to configure", err)
	}
	r.Must("CONFIG", "SET", "appendonly", "yes")
	if err := keep(t.Context()); err != nil {
		t.Errorf("a Redis that keeps what it gets: %v", err)
	}
}

func TestARedisThatDoesNotAnswerIsReported(t *testing.T) {
	m := redistest.InMemory(t)
	address := m.Addr()
	m.Close()
	if _, err := AskRedis(opener(t, address))(t.Context()); err == nil {
		t.Error("AskRedis of a server that is gone = nil, want an error")
	}
	if err := KeepsCompanions(opener(t, address))(t.Context()); err == nil {
		t.Error("KeepsCompanions of a server that is gone = nil, want an error")
	}
	broken := errors.New("no roots")
	open := func() (*redisstore.Store, error) { return nil, broken }
	if _, err := AskRedis(open)(t.Context()); !errors.Is(err, broken) {
		t.Errorf("AskRedis = %v, want the error of opening", err)
	}
	if err := KeepsCompanions(open)(t.Context()); !errors.Is(err, broken) {
		t.Errorf("KeepsCompanions = %v, want the error of opening", err)
	}
}
