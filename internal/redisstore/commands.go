// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// All commands that are sent to Redis are in this file and commands_trial.go, and the scripts under
// their contracts. They are those of Redis 6.0, the oldest that Azure offers. Keys of one script
// have one tag; TestKeysOfAScriptShareASlot sees to it.

// ping: PING.
func ping(ctx context.Context, c redis.UniversalClient) error { return c.Ping(ctx).Err() }

// deliverScript appends to a list that forgets its oldest elements beyond a bound, and all after a
// time.
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

// claimScript claims a key for a while, unless it is claimed by another or done, and says how it
// stands: "mine", "other" or "done".
//
//	KEYS[1] the claim · ARGV[1] whose · ARGV[2] its life in ms
var claimScript = redis.NewScript(`
local v = redis.call('GET', KEYS[1])
if v == '=' then return 'done' end
if v and v ~= ARGV[1] then return 'other' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 'mine'`)

// Answers of claim besides "other".
const (
	claimMine = "mine"
	claimDone = "done"
)

func claim(ctx context.Context, c redis.UniversalClient, key, token string, life time.Duration) (string, error) {
	return claimScript.Run(ctx, c, []string{key}, token, life.Milliseconds()).Text()
}

// settleScript ends a claim: it is done for a while, or anybody's again. A claim that another has
// by now stays his.
//
//	KEYS[1] the claim · ARGV[1] whose it was · ARGV[2] for how many ms it is done; 0 = it is anybody's
var settleScript = redis.NewScript(`
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], '=', 'PX', ARGV[2])
elseif redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1`)

func settle(ctx context.Context, c redis.UniversalClient, key, token string, done time.Duration) error {
	return settleScript.Run(ctx, c, []string{key}, token, done.Milliseconds()).Err()
}

// putScript puts a field into a hash, with the time by the clock of Redis, which is one for all.
//
//	KEYS[1] the hash · ARGV[1] field · ARGV[2] value · ARGV[3] life of the hash in ms
var putScript = redis.NewScript(`
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], (now[1] * 1000 + math.floor(now[2] / 1000)) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`)

func put(ctx context.Context, c redis.UniversalClient, hash, field, value string, life time.Duration) error {
	return putScript.Run(ctx, c, []string{hash}, field, value, life.Milliseconds()).Err()
}

// freshScript returns the fields that were put no longer ago than an age, and forgets the others.
//
//	KEYS[1] the hash · ARGV[1] the age in ms
var freshScript = redis.NewScript(`
local now = redis.call('TIME')
local since = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1]
local fresh, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at, value = string.match(all[i + 1], '^(%d+) (.*)$')
  if at and tonumber(at) >= since then
    fresh[#fresh + 1] = all[i]
    fresh[#fresh + 1] = value
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return fresh`)

func fresh(ctx context.Context, c redis.UniversalClient, hash string, age time.Duration) (map[string]string, error) {
	flat, err := freshScript.Run(ctx, c, []string{hash}, age.Milliseconds()).StringSlice()
	fields := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		fields[flat[i]] = flat[i+1]
	}
	return fields, err
}

// countScript adds to the counts of a hash that lives for a while. Names beyond a bound are counted
// as "other".
//
//	KEYS[1] the hash · ARGV[1] the bound of names · ARGV[2] its life in ms · ARGV[3…] name, count, …
var countScript = redis.NewScript(`
for i = 3, #ARGV, 2 do
  local name = ARGV[i]
  if redis.call('HEXISTS', KEYS[1], name) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[1]) then name = 'other' end
  redis.call('HINCRBY', KEYS[1], name, ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

// mostArguments bounds what one script is given: Lua has to unpack nothing, but Redis waits for it.
const mostArguments = 1000

func countUp(ctx context.Context, c redis.UniversalClient, hash string, names int, life time.Duration, counts map[string]int64) error {
	var add []any
	for name, n := range counts {
		add = append(add, name, n)
	}
	for part := range slices.Chunk(add, mostArguments) {
		if err := countScript.Run(ctx, c, []string{hash}, append([]any{names, life.Milliseconds()}, part...)...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// counted: HGETALL. Fields of others are left out.
func counted(ctx context.Context, c redis.UniversalClient, hash string) (map[string]int64, error) {
	fields, err := c.HGetAll(ctx, hash).Result()
	counts := map[string]int64{}
	for name, text := range fields {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			counts[name] = n
		}
	}
	return counts, err
}

// latest: LRANGE list -most -1.
func latest(ctx context.Context, c redis.UniversalClient, list string, most int) ([]string, error) {
	return c.LRange(ctx, list, -int64(most), -1).Result()
}

var errAnswer = errors.New("the answer does not fit the request")

func texts(answer any) ([]string, error) {
	list, ok := answer.([]any)
	if !ok {
		return nil, errAnswer
	}
	all := make([]string, len(list))
	for i, v := range list {
		if all[i], ok = v.(string); !ok {
			return nil, errAnswer
		}
	}
	return all, nil
}
