// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// pollInterval is how often those peers ask that have to.
const pollInterval = 10 * time.Millisecond

// startRedis starts a server that writes nothing to disk.
func startRedis(ctx context.Context, dir string) (client *redis.Client, version string, stop func() error, err error) {
	port, err := freePort()
	if err != nil {
		return nil, "", nil, err
	}
	addr := "127.0.0.1:" + port
	stop, err = command{
		args: []string{"redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir,
			"--save", "", "--appendonly", "no"},
		addr: addr,
	}.start(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	client = redis.NewClient(&redis.Options{Addr: addr})
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("ask Redis for its version: %w", err), client.Close(), stop())
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			version = "Redis " + strings.TrimSpace(v)
		}
	}
	return client, version, stop, nil
}

// takeDue takes up to a thousand members that are due. Scores are microseconds.
var takeDue = redis.NewScript(`
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, 1000)
if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end
return due`)

// measureSortedSet keeps deadlines in a sorted set, and takes out what is due every pollInterval.
func measureSortedSet(ctx context.Context, d *deadlines, dir string) (version string, err error) {
	client, version, stop, err := startRedis(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, client.Close(), stop()) }()
	polling, end := context.WithCancel(ctx)
	polled := make(chan error, 1)
	go func() { polled <- pollSortedSet(polling, client, d) }()
	defer func() {
		end()
		err = errors.Join(err, <-polled)
	}()
	err = d.load(ctx, 4, 500, func(ctx context.Context, _, first, end int) error {
		members := make([]redis.Z, 0, end-first)
		for i := first; i < end; i++ {
			members = append(members, redis.Z{Score: float64(d.handOver(i).UnixMicro()), Member: payload(i)})
		}
		return client.ZAdd(ctx, "deadlines", members...).Err()
	})
	if err != nil {
		return "", err
	}
	return version, d.await(ctx)
}

// pollSortedSet asks until ctx ends, which is no error.
func pollSortedSet(ctx context.Context, client *redis.Client, d *deadlines) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		due, err := takeDue.Run(ctx, client, []string{"deadlines"}, strconv.FormatInt(time.Now().UnixMicro(), 10)).StringSlice()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("poll the sorted set: %w", err)
		}
		for _, member := range due {
			d.fire(indexOf([]byte(member)))
		}
		if len(due) > 0 {
			continue // there may be more
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// measureAsynq schedules a task for each deadline. Its times have whole seconds.
func measureAsynq(ctx context.Context, d *deadlines, dir string) (version string, err error) {
	client, version, stop, err := startRedis(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, client.Close(), stop()) }()
	server := asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency: 64, LogLevel: asynq.ErrorLevel,
		TaskCheckInterval: pollInterval, DelayedTaskCheckInterval: pollInterval,
	})
	if err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		d.fire(indexOf(t.Payload()))
		return nil
	})); err != nil {
		return "", fmt.Errorf("start asynq: %w", err)
	}
	defer server.Shutdown()
	tasks := asynq.NewClientFromRedisClient(client)
	err = d.load(ctx, 32, 10, func(ctx context.Context, _, first, end int) error {
		for i := first; i < end; i++ {
			if _, err := tasks.EnqueueContext(ctx, asynq.NewTask("deadline", payload(i)), asynq.ProcessAt(d.handOver(i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return "asynq " + moduleVersion("github.com/hibiken/asynq") + ", " + version, d.await(ctx)
}
