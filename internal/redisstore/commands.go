// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// All commands that are sent to Redis are in this file, and the scripts under
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

// presentScript returns the time by the clock of Redis, then the values of a hash, with the times
// when they were put. Values that are older than an age go to a list, which follows.
//
//	KEYS[1] the hash · KEYS[2] the list · ARGV[1] the age in ms · ARGV[2] the bound of the list · ARGV[3] its life in ms
var presentScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found, all = {tostring(now)}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at = tonumber(string.match(all[i + 1], '^%d+'))
  if at and at >= now - ARGV[1] then
    found[#found + 1] = all[i + 1]
  else
    redis.call('HDEL', KEYS[1], all[i])
    redis.call('RPUSH', KEYS[2], all[i + 1])
    redis.call('LTRIM', KEYS[2], -tonumber(ARGV[2]), -1)
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
  end
end
for _, value in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do found[#found + 1] = value end
return found`)

// A stamped value is one that was put.
type stamped struct {
	value string
	age   time.Duration // by the clock of Redis
}

func present(ctx context.Context, c redis.UniversalClient, hash, gone string, age time.Duration, mostGone int, life time.Duration) ([]stamped, error) {
	flat, err := presentScript.Run(ctx, c, []string{hash, gone}, age.Milliseconds(), mostGone, life.Milliseconds()).StringSlice()
	if err != nil || len(flat) == 0 {
		return nil, err
	}
	now, err := strconv.ParseInt(flat[0], 10, 64)
	if err != nil {
		return nil, errAnswer
	}
	var found []stamped
	for _, text := range flat[1:] {
		stamp, value, _ := strings.Cut(text, " ")
		if at, err := strconv.ParseInt(stamp, 10, 64); err == nil { // else somebody else wrote it
			found = append(found, stamped{value, time.Duration(now-at) * time.Millisecond})
		}
	}
	return found, nil
}

// remove: HDEL of one field.
func remove(ctx context.Context, c redis.UniversalClient, hash, field string) error {
	return c.HDel(ctx, hash, field).Err()
}

// countScript adds to the counts of hashes that live for a while. Names beyond a bound are counted
// as "other", with what follows their line. The field "" has when a hash began, in s.
//
//	KEYS[i] a hash · ARGV[i] its life in ms · ARGV[#KEYS+1] the bound of names · then name, count, …
var countScript = redis.NewScript(`
for k, hash in ipairs(KEYS) do
  if redis.call('HLEN', hash) == 0 then redis.call('HINCRBY', hash, '', redis.call('TIME')[1]) end
  for i = #KEYS + 2, #ARGV, 2 do
    local name = ARGV[i]
    if redis.call('HEXISTS', hash, name) == 0 and redis.call('HLEN', hash) > tonumber(ARGV[#KEYS + 1]) then
      name = 'other' .. (string.match(name, '\n.*$') or '')
    end
    redis.call('HINCRBY', hash, name, ARGV[i + 1])
  end
  redis.call('PEXPIRE', hash, ARGV[k])
end
return 1`)

// mostArguments bounds what one script is given: Lua has to unpack nothing, but Redis waits for it.
const mostArguments = 1000

// A tally is a hash of counts.
type tally struct {
	hash string
	life time.Duration
}

func countUp(ctx context.Context, c redis.UniversalClient, names int, counts map[string]int64, tallies ...tally) error {
	var keys []string
	var first, add []any
	for _, t := range tallies {
		keys = append(keys, t.hash)
		first = append(first, t.life.Milliseconds())
	}
	first = append(first, names)
	for name, n := range counts {
		add = append(add, name, n)
	}
	for part := range slices.Chunk(add, mostArguments) {
		if err := countScript.Run(ctx, c, keys, slices.Concat(first, part)...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// counted: HGETALL. Fields of others are left out. began is zero if nothing was counted.
func counted(ctx context.Context, c redis.UniversalClient, hash string) (counts map[string]int64, began time.Time, err error) {
	fields, err := c.HGetAll(ctx, hash).Result()
	counts = map[string]int64{}
	for name, text := range fields {
		n, parseErr := strconv.ParseInt(text, 10, 64)
		switch {
		case parseErr != nil:
		case name == "":
			began = time.Unix(n, 0).UTC()
		default:
			counts[name] = n
		}
	}
	return counts, began, err
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

// trials are the commands of this file and of its scripts, which need a permission each as well,
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

// try sends a command whose answer does not matter.
func try(ctx context.Context, c redis.UniversalClient, a attempt) error {
	err := c.Do(ctx, append([]any{a.command}, a.args...)...).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
