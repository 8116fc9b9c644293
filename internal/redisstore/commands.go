// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// All commands that are sent to Redis are in this file, and the scripts under their contracts. They are those of
// Redis 6.0, the oldest that Azure offers. Keys of one script have one tag; TestKeysOfAScriptShareASlot sees to it.

// ping: PING.
func ping(ctx context.Context, c redis.UniversalClient) error { return c.Ping(ctx).Err() }

// An entry is a value under a key, for as long as it lives.
type entry struct {
	key, value string
	life       time.Duration
}

// putAll: SET key value PX life, of each, in one pipeline. What fails in the middle leaves the rest unsaid.
func putAll(ctx context.Context, c redis.UniversalClient, entries []entry) error {
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range entries {
			p.Set(ctx, e.key, e.value, max(e.life, time.Millisecond))
		}
		return nil
	})
	return err
}

// getAll: GET of each key in one pipeline; "" where there is none.
func getAll(ctx context.Context, c redis.UniversalClient, keys []string) ([]string, error) {
	got := make([]*redis.StringCmd, len(keys))
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			got[i] = p.Get(ctx, k)
		}
		return nil
	})
	values := make([]string, len(keys))
	for i, g := range got {
		v, getErr := g.Result()
		switch {
		case getErr == nil:
			values[i] = v
		case !errors.Is(getErr, redis.Nil):
			return nil, getErr
		}
	}
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return values, err
}

// deliverScript appends to a list that forgets its oldest elements beyond a bound, and all after a time.
//
//	KEYS[1] the list · ARGV[1] its bound · ARGV[2] its life in ms · ARGV[3…] what is appended
var deliverScript = redis.NewScript(`
for i = 3, #ARGV, 500 do
  redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 499, #ARGV)))
end
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[1]), -1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

func deliver(ctx context.Context, c redis.UniversalClient, list string, most int, life time.Duration, values []string) error {
	args := make([]any, 0, 2+len(values))
	args = append(args, most, life.Milliseconds())
	for _, v := range values {
		args = append(args, v)
	}
	return deliverScript.Run(ctx, c, []string{list}, args...).Err()
}

// collectScript takes the first elements off a list and returns them.
//
//	KEYS[1] the list · ARGV[1] how many at most
var collectScript = redis.NewScript(`
local got = redis.call('LRANGE', KEYS[1], 0, ARGV[1] - 1)
if #got > 0 then redis.call('LTRIM', KEYS[1], #got, -1) end
return got`)

func collect(ctx context.Context, c redis.UniversalClient, list string, most int) ([]string, error) {
	return collectScript.Run(ctx, c, []string{list}, most).StringSlice()
}
