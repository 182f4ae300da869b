-- One guarded transaction. KEYS: each key once. ARGV: the guards, the operations done if all hold, those done if
-- one doesn't; each list as its length and then, for each item, a code, the number of its key, and its arguments.
-- Answers {0, reply, ...} or {number of the guard that doesn't hold, reply, ...}.
local at = 1
local function take()
  local value = ARGV[at]
  at = at + 1
  return value
end
local function item(arities)
  local code = take()
  local one = { code, KEYS[tonumber(take())] }
  local count = arities[code]
  if count == nil then count = tonumber(take()) end
  for i = 1, count do one[i + 2] = take() end
  return one
end
local function list(arities)
  local items = {}
  for i = 1, tonumber(take()) do items[i] = item(arities) end
  return items
end

-- How many arguments follow the key; a code that is not listed says so itself.
local guards = list({ A = 0, P = 0, I = 1, FA = 1, FP = 1, FI = 2 })
local arities = {
  GET = 0, SET = 2, DEL = 0, EXP = 1, ADD = 1, HGET = 1, HALL = 0, HDEL = 1, HADD = 2,
  ZADD = 2, ZREM = 1, ZR = 4, ZM = 3, ZN = 0, XADD = 2, XREV = 2,
}
local when_held = list(arities)
local otherwise = list(arities)

local function holds(guard)
  local code, key = guard[1], guard[2]
  if code == 'A' then return redis.call('EXISTS', key) == 0 end
  if code == 'P' then return redis.call('EXISTS', key) == 1 end
  if code == 'I' then return redis.call('GET', key) == guard[3] end
  if code == 'FA' then return redis.call('HEXISTS', key, guard[3]) == 0 end
  if code == 'FP' then return redis.call('HEXISTS', key, guard[3]) == 1 end
  return redis.call('HGET', key, guard[3]) == guard[4]
end

local failed = 0
for i = 1, #guards do
  if not holds(guards[i]) then
    failed = i
    break
  end
end
local todo = failed == 0 and when_held or otherwise

-- Kinds are checked before anything is changed: a script that fails half way is not undone.
local kinds = {
  GET = 'string', ADD = 'string', HGET = 'hash', HALL = 'hash', HSET = 'hash', HDEL = 'hash', HADD = 'hash',
  ZADD = 'zset', ZREM = 'zset', ZR = 'zset', ZM = 'zset', ZN = 'zset', XADD = 'stream', XREV = 'stream',
}
local becomes = {}
for i = 1, #todo do
  local code, key = todo[i][1], todo[i][2]
  local now = becomes[key] or redis.call('TYPE', key).ok
  local wanted = kinds[code]
  if wanted ~= nil and now ~= 'none' and now ~= wanted then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds a ' .. now .. ', not a ' .. wanted)
  end
  if code == 'SET' then becomes[key] = 'string' elseif code == 'DEL' then becomes[key] = 'none'
  elseif code == 'HSET' or code == 'HADD' then becomes[key] = 'hash' elseif code == 'ZADD' then becomes[key] = 'zset'
  elseif code == 'XADD' then becomes[key] = 'stream' elseif code == 'ADD' then becomes[key] = 'string'
  else becomes[key] = now end
end

local does = {
  GET = function(o) return redis.call('GET', o[2]) end,
  SET = function(o)
    if o[4] == '0' then redis.call('SET', o[2], o[3]) else redis.call('SET', o[2], o[3], 'PX', o[4]) end
    return 0
  end,
  DEL = function(o) redis.call('DEL', o[2]) return 0 end,
  EXP = function(o) redis.call('PEXPIRE', o[2], o[3]) return 0 end,
  ADD = function(o) return redis.call('INCRBY', o[2], o[3]) end,
  HGET = function(o) return redis.call('HGET', o[2], o[3]) end,
  HALL = function(o) return redis.call('HGETALL', o[2]) end,
  HSET = function(o)
    for i = 3, #o, 2 do redis.call('HSET', o[2], o[i], o[i + 1]) end
    return 0
  end,
  HDEL = function(o) redis.call('HDEL', o[2], o[3]) return 0 end,
  HADD = function(o) return redis.call('HINCRBY', o[2], o[3], o[4]) end,
  ZADD = function(o) redis.call('ZADD', o[2], o[3], o[4]) return 0 end,
  ZREM = function(o) redis.call('ZREM', o[2], o[3]) return 0 end,
  ZR = function(o)
    if o[6] == '1' then
      return redis.call('ZREVRANGEBYSCORE', o[2], o[4], o[3], 'WITHSCORES', 'LIMIT', 0, o[5])
    end
    return redis.call('ZRANGEBYSCORE', o[2], o[3], o[4], 'WITHSCORES', 'LIMIT', 0, o[5])
  end,
  ZM = function(o) return redis.call('ZRANGEBYLEX', o[2], o[3], o[4], 'LIMIT', 0, o[5]) end,
  ZN = function(o) return redis.call('ZCARD', o[2]) end,
  XADD = function(o) return redis.call('XADD', o[2], 'MAXLEN', '~', o[3], '*', 'v', o[4]) end,
  XREV = function(o) return redis.call('XREVRANGE', o[2], o[3], '-', 'COUNT', o[4]) end,
}
local answer = { failed }
for i = 1, #todo do answer[i + 1] = does[todo[i][1]](todo[i]) end
return answer
