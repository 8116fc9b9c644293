// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"hash/fnv"
	"testing"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/redistest"
	"overdue/internal/testing/testseed"
)

// A Play runs a scene on fake time: the functions of configure first, then act.
type Play[S interface{ Base() *Scene }] func(t *testing.T, act func(S), configure ...func(S, *broker.Config))

// modes are the ways in which a broker may expire.
var modes = []struct {
	name   string
	expiry queue.Expiry
}{{"lazy", queue.Lazy}, {"lazy-head", queue.LazyHead}, {"eager", queue.Eager}}

// InModes plays a scene with each way in which a broker may expire. configure makes its entities. The
// race detector watches one of them, by the name of the test: the way changes when messages expire,
// not what goroutines share.
func (p Play[S]) InModes(t *testing.T, configure func(S, *broker.Config), act func(S)) {
	if racetest.Enabled && !testseed.Chosen() {
		h := fnv.New32a()
		h.Write([]byte(t.Name()))
		p.inMode(t, int(h.Sum32()%uint32(len(modes))), configure, act)
		return
	}
	for i := range modes {
		p.inMode(t, i, configure, act)
	}
}

// InModeOfTurn is InModes where seeds are random, and otherwise plays one of the modes: for tests
// with so many scenes that each mode has its turn.
func (p Play[S]) InModeOfTurn(t *testing.T, turn int, configure func(S, *broker.Config), act func(S)) {
	if testseed.Chosen() {
		p.InModes(t, configure, act)
	} else {
		p.inMode(t, turn%len(modes), configure, act)
	}
}

func (p Play[S]) inMode(t *testing.T, i int, configure func(S, *broker.Config), act func(S)) {
	m := modes[i]
	t.Run(m.name, func(t *testing.T) {
		p(t, act, func(s S, c *broker.Config) {
			c.Expiry, s.Base().Expiry = m.expiry, m.expiry
			configure(s, c)
		})
	})
}

// InStores plays a scene twice: with the companions on the monitor queue, and with them in Redis.
func (p Play[S]) InStores(t *testing.T, act func(S), configure ...func(S, *broker.Config)) {
	t.Helper()
	t.Run("monitor queue", func(t *testing.T) { p(t, act, configure...) })
	t.Run("redis", func(t *testing.T) { p(t, act, append(configure, InRedis[S](redistest.Start(t).Addr))...) })
}

// InModesAndRedis is InModes, and once more with the companions in Redis.
func (p Play[S]) InModesAndRedis(t *testing.T, configure func(S, *broker.Config), act func(S)) {
	t.Helper()
	p.InModes(t, configure, act)
	t.Run("redis", func(t *testing.T) { p(t, act, configure, InRedis[S](redistest.Start(t).Addr)) })
}

// Adopts has the monitors run an adopt pass over these entities every two seconds.
func Adopts[S interface{ Base() *Scene }](names ...string) func(S, *broker.Config) {
	return func(scene S, _ *broker.Config) {
		scene.Base().Adopt = append(scene.Base().Adopt, names...)
	}
}
