// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/redistest"
)

// inStores plays a scene twice: with the companions on the monitor queue, and with them in Redis.
func inStores(t *testing.T, act func(*scene), configure ...func(*scene, *broker.Config)) {
	t.Helper()
	t.Run("monitor queue", func(t *testing.T) { play(t, act, configure...) })
	t.Run("redis", func(t *testing.T) { play(t, act, append(configure, inRedis(redistest.InMemory(t).Addr()))...) })
}

// inRedis has companions kept there.
func inRedis(addr string) func(*scene, *broker.Config) {
	return func(s *scene, _ *broker.Config) {
		s.stored = func() *redisstore.Companions { return openRedis(s, addr, 20).Companions() }
	}
}

