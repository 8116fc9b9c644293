// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// All commands that are sent to Redis are in this file and commands_trial.go, and the scripts under
// their contracts. They are those of Redis 6.0, the oldest that Azure offers. Keys of one script
// have one tag; TestKeysOfAScriptShareASlot sees to it.

// ping: PING.
func ping(ctx context.Context, c redis.UniversalClient) error { return c.Ping(ctx).Err() }

// An entry is a value under a key, for as long as it lives.
type entry struct {
	key, value string
	life       time.Duration
}

// putAll: SET key value PX life, of each, in one pipeline. A failure in the middle leaves the rest
// unsaid.
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

// reportScript notes what one process knows, and adds to what all of them have counted. Names
// beyond a bound are counted as "other".
//
//	KEYS[1] reports by process · KEYS[2] counts by name
//	ARGV[1] the process · ARGV[2] its report · ARGV[3] the bound of names · ARGV[4] the life of both in ms · ARGV[5…] name, count, …
var reportScript = redis.NewScript(`
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], (now[1] * 1000 + math.floor(now[2] / 1000)) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
for i = 5, #ARGV, 2 do
  local name = ARGV[i]
  if redis.call('HEXISTS', KEYS[2], name) == 0 and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then name = 'other' end
  redis.call('HINCRBY', KEYS[2], name, ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1`)

func report(ctx context.Context, c redis.UniversalClient, reports, counts, process, body string, names int, life time.Duration, add []any) error {
	args := append([]any{process, body, names, life.Milliseconds()}, add...)
	return reportScript.Run(ctx, c, []string{reports, counts}, args...).Err()
}

// viewScript returns the reports that are no older than a bound, and forgets the others, and what
// has been counted.
//
//	KEYS[1] reports by process · KEYS[2] counts by name · ARGV[1] the age in ms
var viewScript = redis.NewScript(`
local now = redis.call('TIME')
local since = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1]
local fresh, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at, body = string.match(all[i + 1], '^(%d+) (.*)$')
  if at and tonumber(at) >= since then fresh[#fresh + 1] = body else redis.call('HDEL', KEYS[1], all[i]) end
end
return {fresh, redis.call('HGETALL', KEYS[2])}`)

func view(ctx context.Context, c redis.UniversalClient, reports, counts string, age time.Duration) (fresh, counted []string, err error) {
	answer, err := viewScript.Run(ctx, c, []string{reports, counts}, age.Milliseconds()).Slice()
	if err != nil {
		return nil, nil, err
	}
	if len(answer) != 2 {
		return nil, nil, errAnswer
	}
	fresh, err = texts(answer[0])
	if err != nil {
		return nil, nil, err
	}
	counted, err = texts(answer[1])
	return fresh, counted, err
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

// putExpiringScript puts a field into a hash that lives for a while.
//
//	KEYS[1] the hash · ARGV[1] field · ARGV[2] value · ARGV[3] life in ms
var putExpiringScript = redis.NewScript(`
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`)

func putExpiring(ctx context.Context, c redis.UniversalClient, hash, field, value string, life time.Duration) error {
	return putExpiringScript.Run(ctx, c, []string{hash}, field, value, life.Milliseconds()).Err()
}

// takeScript takes all fields of a hash, and a note with them, unless somebody else has claimed
// that. It returns "1" and both, or "0".
//
//	KEYS[1] the claim · KEYS[2] the hash · KEYS[3] the note · ARGV[1] whose · ARGV[2] life of the claim in ms
var takeScript = redis.NewScript(`
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {'0', {}, ''} end
local all = redis.call('HGETALL', KEYS[2])
redis.call('DEL', KEYS[2])
return {'1', all, redis.call('GET', KEYS[3]) or ''}`)

func take(ctx context.Context, c redis.UniversalClient, claim, hash, note, token string, life time.Duration) (mine bool, all []string, text string, err error) {
	answer, err := takeScript.Run(ctx, c, []string{claim, hash, note}, token, life.Milliseconds()).Slice()
	if err != nil {
		return false, nil, "", err
	}
	if len(answer) != 3 {
		return false, nil, "", errAnswer
	}
	if all, err = texts(answer[1]); err != nil {
		return false, nil, "", err
	}
	text, _ = answer[2].(string)
	return answer[0] == "1", all, text, nil
}

// leaveScript writes the note of a claim and ends it. Of a claim that another has by now it does
// nothing.
//
//	KEYS[1] the claim · KEYS[2] the note · ARGV[1] whose · ARGV[2] the note · ARGV[3] its life in ms
var leaveScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[1])
return 1`)

func leave(ctx context.Context, c redis.UniversalClient, claim, note, token, text string, life time.Duration) error {
	return leaveScript.Run(ctx, c, []string{claim, note}, token, text, life.Milliseconds()).Err()
}

// countScript adds to the counts of a hash that lives for a while. Of names beyond a bound nothing
// is counted.
//
//	KEYS[1] the hash · ARGV[1] the bound of names · ARGV[2] its life in ms · ARGV[3…] name, count, …
var countScript = redis.NewScript(`
local room = tonumber(ARGV[1]) - redis.call('HLEN', KEYS[1])
for i = 3, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
  elseif room > 0 then
    redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
    room = room - 1
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

func countUp(ctx context.Context, c redis.UniversalClient, hash string, names int, life time.Duration, add []any) error {
	return countScript.Run(ctx, c, []string{hash}, append([]any{names, life.Milliseconds()}, add...)...).Err()
}

// counted: HGETALL of each hash in one pipeline.
func counted(ctx context.Context, c redis.UniversalClient, hashes []string) ([]map[string]string, error) {
	got := make([]*redis.MapStringStringCmd, len(hashes))
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, h := range hashes {
			got[i] = p.HGetAll(ctx, h)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]map[string]string, len(hashes))
	for i, g := range got {
		all[i] = g.Val()
	}
	return all, nil
}

// latest: LRANGE list -most -1.
func latest(ctx context.Context, c redis.UniversalClient, list string, most int) ([]string, error) {
	return c.LRange(ctx, list, -int64(most), -1).Result()
}
