// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// keepScript keeps what is not kept yet, and notifies listeners where something is due before all
// else.
//
//	KEYS[1] what waits, by when it is due · KEYS[2] records
//	ARGV[1] the channel · ARGV[2] the message · ARGV[3…] id, when it is due in ms, record, …
var keepScript = redis.NewScript(`
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
local soonest
for i = 3, #ARGV, 3 do
  if redis.call('HSETNX', KEYS[2], ARGV[i], ARGV[i + 2]) == 1 then
    redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i])
    local due = tonumber(ARGV[i + 1])
    if not soonest or due < soonest then soonest = due end
  end
end
if soonest and (not first or soonest < tonumber(first)) then redis.pcall('PUBLISH', ARGV[1], ARGV[2]) end
return 1`)

func keep(ctx context.Context, c redis.UniversalClient, k *place, channel string, items []any) error {
	args := append([]any{channel, k.name}, items...)
	return keepScript.Run(ctx, c, []string{k.due, k.records}, args...).Err()
}

// withdrawScript forgets what still waits, and returns what that was.
//
//	KEYS[1] what waits · KEYS[2] records · ARGV[1…] ids
var withdrawScript = redis.NewScript(`
local gone = {}
for _, id in ipairs(ARGV) do
  if redis.call('ZREM', KEYS[1], id) == 1 then
    redis.call('HDEL', KEYS[2], id)
    gone[#gone + 1] = id
  end
end
return gone`)

func withdraw(ctx context.Context, c redis.UniversalClient, k *place, ids []any) ([]string, error) {
	return withdrawScript.Run(ctx, c, []string{k.due, k.records}, ids...).StringSlice()
}

// leaseScript leases what is due, first what was leased and not renewed. Leases are by the clock of
// Redis, which is one for all; what is due is so by the clock of the caller, who knows the
// broker's. It returns ids and records, when the next is due, and in how many ms the next lease
// lapses; "" where there is none.
//
//	KEYS[1] what waits, by when it is due · KEYS[2] what is leased, by until when · KEYS[3] who leases · KEYS[4] records
//	ARGV[1] now in ms · ARGV[2] life of a lease in ms · ARGV[3] how many at most · ARGV[4] bytes after which no more are taken · ARGV[5] whose
var leaseScript = redis.NewScript(`
local time = redis.call('TIME')
local now, most, room = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[3]), tonumber(ARGV[4])
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, most)
if #ids < most then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, most - #ids)) do ids[#ids + 1] = id end
end
local got = {}
for _, id in ipairs(ids) do
  if room <= 0 then break end
  redis.call('ZREM', KEYS[1], id)
  local record = redis.call('HGET', KEYS[4], id)
  if record then
    redis.call('ZADD', KEYS[2], now + ARGV[2], id)
    redis.call('HSET', KEYS[3], id, ARGV[5])
    got[#got + 1] = id
    got[#got + 1] = record
    room = room - #record
  else
    redis.call('ZREM', KEYS[2], id)
    redis.call('HDEL', KEYS[3], id)
  end
end
local due = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
local lapse = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
return {got, due or '', lapse and string.format('%d', lapse - now) or ''}`)

func lease(ctx context.Context, c redis.UniversalClient, k *place, now int64, life time.Duration, most, bytes int, token string) (got []string, due, lapse string, err error) {
	answer, err := leaseScript.Run(ctx, c, []string{k.due, k.leased, k.holders, k.records}, now, life.Milliseconds(), most, bytes, token).Slice()
	if err != nil {
		return nil, "", "", err
	}
	if len(answer) != 3 {
		return nil, "", "", errAnswer
	}
	due, isText := answer[1].(string)
	lapse, alsoText := answer[2].(string)
	if got, err = texts(answer[0]); err != nil || !isText || !alsoText || len(got)%2 != 0 {
		return nil, "", "", errAnswer
	}
	return got, due, lapse, nil
}

// holdsScript returns what somebody leases.
//
//	KEYS[1] what is leased · KEYS[2] who leases · ARGV[1] whose
var holdsScript = redis.NewScript(`
local held = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if redis.call('HGET', KEYS[2], id) == ARGV[1] then held[#held + 1] = id end
end
return held`)

func holds(ctx context.Context, c redis.UniversalClient, k *place, token string) ([]string, error) {
	return holdsScript.Run(ctx, c, []string{k.leased, k.holders}, token).StringSlice()
}

// renewScript renews leases, and returns those that another has by now, or nobody.
//
//	KEYS[1] what is leased · KEYS[2] who leases · ARGV[1] whose · ARGV[2] life in ms · ARGV[3…] ids
var renewScript = redis.NewScript(`
local time = redis.call('TIME')
local till, lost = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], {}
for i = 3, #ARGV do
  if redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[1] then redis.call('ZADD', KEYS[1], till, ARGV[i]) else lost[#lost + 1] = ARGV[i] end
end
return lost`)

func renew(ctx context.Context, c redis.UniversalClient, k *place, token string, life time.Duration, ids []string) ([]string, error) {
	args := []any{token, life.Milliseconds()}
	for _, id := range ids {
		args = append(args, id)
	}
	return renewScript.Run(ctx, c, []string{k.leased, k.holders}, args...).StringSlice()
}

// finishScript deletes finished companions, even if another process leases them by now, and puts it
// where operators find it if it could not be.
//
//	KEYS[1] what waits · KEYS[2] what is leased · KEYS[3] who leases · KEYS[4] records · KEYS[5] the dead, the latest first
//	ARGV[1] how many dead are kept · ARGV[2…] id, "" or the notification of the dead, …
var finishScript = redis.NewScript(`
for i = 2, #ARGV, 2 do
  local id, dead = ARGV[i], ARGV[i + 1]
  if redis.call('HDEL', KEYS[4], id) == 1 and dead ~= '' then
    redis.call('LPUSH', KEYS[5], dead)
    redis.call('LTRIM', KEYS[5], 0, ARGV[1] - 1)
  end
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end
return 1`)

func finish(ctx context.Context, c redis.UniversalClient, k *place, mostDead int, endings []any) error {
	args := append([]any{mostDead}, endings...)
	return finishScript.Run(ctx, c, []string{k.due, k.leased, k.holders, k.records, k.dead}, args...).Err()
}

// handBackScript has others lease what was leased, at once, unless another does.
//
//	KEYS[1] what waits · KEYS[2] what is leased · KEYS[3] who leases
//	ARGV[1] the channel · ARGV[2] the message · ARGV[3] whose · ARGV[4] id · ARGV[5] when it is due in ms
var handBackScript = redis.NewScript(`
if redis.call('HGET', KEYS[3], ARGV[4]) ~= ARGV[3] then return 0 end
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('HDEL', KEYS[3], ARGV[4])
redis.call('ZADD', KEYS[1], ARGV[5], ARGV[4])
redis.pcall('PUBLISH', ARGV[1], ARGV[2])
return 1`)

func handBack(ctx context.Context, c redis.UniversalClient, k *place, channel, token, id string, due int64) error {
	return handBackScript.Run(ctx, c, []string{k.due, k.leased, k.holders}, channel, k.name, token, id, due).Err()
}

// subscribe: SUBSCRIBE channel.
func subscribe(ctx context.Context, c redis.UniversalClient, channel string) *redis.PubSub {
	return c.Subscribe(ctx, channel)
}

// count: ZCARD, ZCARD and LLEN of what waits, is leased and is dead.
func count(ctx context.Context, c redis.UniversalClient, k *place) (waiting, leased, dead int64, err error) {
	var w, l, d *redis.IntCmd
	_, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
		w, l, d = p.ZCard(ctx, k.due), p.ZCard(ctx, k.leased), p.LLen(ctx, k.dead)
		return nil
	})
	return w.Val(), l.Val(), d.Val(), err
}

// scan: HSCAN records cursor COUNT n, of ids that match. ids and records, and the next cursor, 0 at
// the end.
func scan(ctx context.Context, c redis.UniversalClient, k *place, cursor uint64, match string, n int64) ([]string, uint64, error) {
	return c.HScan(ctx, k.records, cursor, match, n).Result()
}

// deadOf: LRANGE of the dead.
func deadOf(ctx context.Context, c redis.UniversalClient, k *place, from, to int64) ([]string, error) {
	return c.LRange(ctx, k.dead, from, to).Result()
}
