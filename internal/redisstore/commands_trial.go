// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// infos: INFO, of each server that is written to.
func infos(ctx context.Context, c redis.UniversalClient) (all []string, err error) {
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		text, err := c.Info(ctx).Result()
		if err != nil {
			return nil, err
		}
		return []string{text}, nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		text, err := one.Info(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, text)
		return err
	})
	return all, err
}

// attempt is one command with its arguments.
type attempt struct {
	command string
	args    []any
}

// trials are the commands of commands.go and of its scripts, which need a permission each as well,
// on keys that begin with key and are gone afterwards. Commands that a client sends by itself have
// been permitted by the time that it is connected.
func trials(key string) []attempt {
	text, hash, list := key+":text", key+":hash", key+":list"
	const script, life = "return 1", 10_000 // ms
	sum := sha1.Sum([]byte(script))
	all := []attempt{
		{"set", []any{text, "x", "px", life}}, {"get", []any{text}},
		{"hset", []any{hash, "f", "x"}}, {"pexpire", []any{hash, life}}, {"hget", []any{hash, "f"}}, {"hgetall", []any{hash}},
		{"hexists", []any{hash, "f"}}, {"hlen", []any{hash}}, {"hincrby", []any{hash, "n", 1}}, {"hdel", []any{hash, "n"}},
		{"rpush", []any{list, "x"}}, {"pexpire", []any{list, life}}, {"lrange", []any{list, 0, -1}}, {"ltrim", []any{list, 0, 0}},
		{"time", nil}, {"eval", []any{script, 1, text}}, {"evalsha", []any{hex.EncodeToString(sum[:]), 1, text}},
	}
	for _, k := range []string{text, hash, list} {
		all = append(all, attempt{"del", []any{k}})
	}
	return all
}

// trial sends a command whose answer does not matter.
func trial(ctx context.Context, c redis.UniversalClient, a attempt) error {
	err := c.Do(ctx, append([]any{a.command}, a.args...)...).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
