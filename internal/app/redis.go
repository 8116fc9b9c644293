// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/redisstore"
)

// startRedis opens what the fleet shares, if there is a Redis. Nothing waits for it: it is asked when something is to be
// shared.
func startRedis(e *environment, host string) (*redisstore.Store, error) {
	if e.cfg.Redis == "" {
		return nil, nil
	}
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "overdue_redis_up", Help: "Whether Redis answered when it was last asked, by what for: 1 or 0.",
	}, []string{"use"})
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "overdue_redis_requests_total", Help: "Requests to Redis, by what for and by result: ok or error. While Redis does not answer, Overdue asks it every two seconds.",
	}, []string{"use", "result"})
	e.registry.MustRegister(up, requests)
	s, err := redisstore.Open(redisstore.Config{
		Address: e.cfg.RedisAddress, Roots: e.cfg.RedisRoots, Fleet: []string{alert.NamespaceOf(host), e.cfg.MonitorQueue},
		Asked: func(use string, err error, news bool) {
			result, answers := "ok", 1.0
			if err != nil {
				result, answers = "error", 0
			}
			requests.WithLabelValues(use, result).Inc()
			up.WithLabelValues(use).Set(answers)
			switch {
			case !news:
			case err != nil:
				next := "going on without it"
				if use == "companions" {
					next = "sends with a deadline are refused or go to the journal, and no companion becomes due, until it is back"
				}
				e.log.Warn("redis unavailable", zap.String("use", use), zap.Error(err), zap.String("next", next))
			default:
				e.log.Info("redis available again", zap.String("use", use))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the client of Redis: %w", err)
	}
	e.life.Started("redis", func(_ context.Context) error {
		_ = s.Close() // nothing that is kept there has to be
		return nil
	})
	e.addOutbound("redis", s.Ping)
	return s, nil
}
