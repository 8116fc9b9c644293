// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"

	"overdue/internal/redisstore"
)

// AskRedis is [Redis.Ask] for a Redis that open opens. It also tries the commands that the program
// sends.
func AskRedis(open func() (*redisstore.Store, error)) func(context.Context) (RedisState, error) {
	return func(ctx context.Context) (state RedisState, err error) {
		s, err := open()
		if err != nil {
			return state, err
		}
		c, err := s.Checkup(ctx)
		if err = errors.Join(err, s.Close()); err != nil {
			return state, err
		}
		state = RedisState{RoundTrip: c.RoundTrip, Denied: c.Denied, KeyDenied: c.KeyDenied, Refusal: c.Refusal}
		for _, server := range c.Servers {
			state.Servers = append(state.Servers, RedisServer(server))
		}
		return state, nil
	}
}

// KeepsCompanions is [Redis.Keep] for a Redis that open opens.
func KeepsCompanions(open func() (*redisstore.Store, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		s, err := open()
		if err != nil {
			return err
		}
		companions := s.Companions()
		durability, err := companions.Inspect(ctx)
		if err == nil {
			err = companions.Try(ctx)
		}
		if problem, _ := durability.Problem(); err == nil && problem != "" {
			err = errors.New(problem)
		}
		return errors.Join(err, s.Close())
	}
}
