// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/redisstore"
)

const (
	// The store is checked after storeCheck, by a process that counts companions; after storeCheckRarely by others; and after
	// storeCheckAgain while it does not answer.
	storeCheck       = 5 * time.Second
	storeCheckRarely = 30 * time.Second
	storeCheckAgain  = time.Second
)

// A companionStore is the Redis that keeps companions, as operators see it.
type companionStore struct {
	*redisstore.Companions
	log    *zap.Logger
	counts bool   // it shows how many there are
	doubt  wakeup // asks for another check

	durable prometheus.Gauge
	kept    *prometheus.GaugeVec

	mu      sync.Mutex
	err     error  // of the last check
	problem string // why what it keeps may be lost; "" = it is not
}

// startStore opens the companion store, nil where the monitor queue has the companions.
func startStore(e *environment, shared *redisstore.Store) *companionStore {
	if !e.cfg.CompanionsInRedis() {
		return nil
	}
	s := &companionStore{
		Companions: shared.Companions(), log: e.log.Named("store"), counts: e.role.Monitor, doubt: newWakeup(), err: errNotTried,
		durable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "overdue_companion_store_durable", Help: "Whether Redis persists the companions, as far as it says: 1 or 0.",
		}),
		kept: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "overdue_stored_companions",
			Help: "Companions and notes in Redis: waiting for their time, leased by a monitor, dead (could not be done). Every monitor shows the same. Absent while Redis is.",
		}, []string{"state"}),
	}
	e.registry.MustRegister(s.durable)
	if s.counts {
		e.registry.MustRegister(s.kept)
		e.life.Background("companions that others keep", s.Listen)
	}
	e.life.Background("companion store", s.run)
	e.addOutbound("companion store", func(ctx context.Context) error {
		if err := s.state(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.problem != "" {
			return errors.New(s.problem)
		}
		return nil
	})
	return s
}

// state is why companions cannot be kept, as far as is known.
func (s *companionStore) state(context.Context) error {
	err := s.Failure()
	if err == nil {
		s.mu.Lock()
		err = s.err
		s.mu.Unlock()
	}
	if err == nil || errors.Is(err, errNotTried) {
		return err
	}
	return &adminport.Failure{Reason: adminport.CompanionStore, Err: err}
}

// run checks the store until ctx ends. It fails where the store forgets what it is given and has done so from the start.
func (s *companionStore) run(ctx context.Context) error {
	for fresh := true; ctx.Err() == nil; {
		wait := storeCheckRarely
		if s.counts {
			wait = storeCheck
		}
		hopeless, err := s.check(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil:
			wait = storeCheckAgain
		case hopeless && fresh:
			return errors.New(s.problem)
		default:
			fresh = false
		}
		select {
		case <-time.After(wait):
		case <-s.doubt:
		case <-ctx.Done():
		}
	}
	return nil
}

// check asks how the store is.
func (s *companionStore) check(ctx context.Context) (hopeless bool, err error) {
	d, err := s.Inspect(ctx)
	if err == nil && s.counts {
		err = s.count(ctx)
	}
	if ctx.Err() != nil {
		return false, nil
	}
	s.mu.Lock()
	was, err0 := s.problem, s.err
	s.err = err
	if err == nil {
		s.problem, hopeless = d.Problem()
	}
	is := s.problem
	s.mu.Unlock()
	switch {
	case err != nil:
		s.kept.Reset()
		if errors.Is(err0, errNotTried) {
			s.log.Warn("companion store unreachable", zap.Error(err), zap.String("next", "check Redis and the setting redis; the process keeps trying"))
		}
		return false, err
	case is != "":
		s.durable.Set(0)
	default:
		s.durable.Set(1)
	}
	switch {
	case is == was && !errors.Is(err0, errNotTried):
	case is != "":
		s.log.Warn("companions may be lost", zap.String("why", is))
	default:
		s.log.Info("companion store attached")
	}
	return hopeless, nil
}

func (s *companionStore) count(ctx context.Context) error {
	n, err := s.Counts(ctx)
	if err != nil {
		return err
	}
	s.kept.WithLabelValues("waiting").Set(float64(n.Waiting))
	s.kept.WithLabelValues("leased").Set(float64(n.Leased))
	s.kept.WithLabelValues("dead").Set(float64(n.Dead))
	return nil
}
