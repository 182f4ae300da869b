-- One guarded transaction. KEYS: each key once. ARGV: the guards, the operations done if all hold, those done if
-- one doesn't; each list as its length and then, for each item, a code, the number of its key, and its arguments.
-- Answers {0, reply, ...} or {number of the guard that doesn't hold, reply, ...}; or an error that names a key by its
-- number: WRONGTYPE or NOTINTEGER.
local at = 1
local function take()
  local value = ARGV[at]
  at = at + 1
  return value
end
local function item(arities)
  local code = take()
  local number = tonumber(take())
  local one = { code, KEYS[number], number = number }
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

local function wrong_kind(number, now, wanted)
  return redis.error_reply('WRONGTYPE ' .. number .. ' it holds a ' .. now .. ', not a ' .. wanted)
end

local function holds(guard)
  local code, key = guard[1], guard[2]
  if code == 'A' then return redis.call('EXISTS', key) == 0 end
  if code == 'P' then return redis.call('EXISTS', key) == 1 end
  if code == 'I' then return redis.call('GET', key) == guard[3] end
  if code == 'FA' then return redis.call('HEXISTS', key, guard[3]) == 0 end
  if code == 'FP' then return redis.call('HEXISTS', key, guard[3]) == 1 end
  return redis.call('HGET', key, guard[3]) == guard[4]
end

local guard_kinds = { I = 'string', FA = 'hash', FP = 'hash', FI = 'hash' }
local failed = 0
for i = 1, #guards do
  local wanted = guard_kinds[guards[i][1]]
  if wanted ~= nil then
    local now = redis.call('TYPE', guards[i][2]).ok
    if now ~= 'none' and now ~= wanted then return wrong_kind(guards[i].number, now, wanted) end
  end
  if not holds(guards[i]) then
    failed = i
    break
  end
end
local todo = failed == 0 and when_held or otherwise

-- Kinds and sums are checked before anything is changed: a script that fails half way is not undone. What the
-- operations before have made of a key is followed in `known`.
local kinds = {
  GET = 'string', ADD = 'string', HGET = 'hash', HALL = 'hash', HSET = 'hash', HDEL = 'hash', HADD = 'hash',
  ZADD = 'zset', ZREM = 'zset', ZR = 'zset', ZM = 'zset', ZN = 'zset', XADD = 'stream', XREV = 'stream',
}
local makes = { ADD = true, HADD = true, ZADD = true, XADD = true }

-- A whole number of 64 bits as two, since one number here holds only 53: all but its last nine digits, and these.
local function whole(text)
  if not text then return { 0, 0 } end
  local sign, digits = string.match(text, '^(-?)(%d+)$')
  if digits == nil or #digits > 19 or (text ~= '0' and string.sub(digits, 1, 1) == '0') then return nil end
  local by = sign == '-' and -1 or 1
  return { by * (tonumber(string.sub(digits, 1, -10)) or 0), by * tonumber(string.sub(digits, -9)) }
end
local function sum(a, b)
  if a == nil or b == nil then return nil end
  local low = a[2] + b[2]
  local carry = math.floor(low / 1000000000)
  local high = a[1] + b[1] + carry
  low = low - carry * 1000000000
  if high > 9223372036 or (high == 9223372036 and low > 854775807) then return nil end
  if high < -9223372037 or (high == -9223372037 and low < 145224192) then return nil end
  return { high, low }
end

local known = {}
for i = 1, #todo do
  local one = todo[i]
  local code, key = one[1], one[2]
  local now = known[key]
  if now == nil then
    now = { kind = redis.call('TYPE', key).ok, numbers = {}, kept = true }
    known[key] = now
  end
  local wanted = kinds[code]
  if wanted ~= nil and now.kind ~= 'none' and now.kind ~= wanted then
    return wrong_kind(one.number, now.kind, wanted)
  end
  if makes[code] or (code == 'HSET' and #one > 2) then now.kind = wanted end
  if code == 'SET' then
    known[key] = { kind = 'string', value = { whole(one[3]) }, numbers = {} }
  elseif code == 'DEL' then
    known[key] = { kind = 'none', numbers = {} }
  elseif code == 'HSET' then
    for j = 3, #one, 2 do now.numbers[one[j]] = { whole(one[j + 1]) } end
  elseif code == 'HDEL' then
    now.numbers[one[3]] = { { 0, 0 } }
  elseif code == 'ADD' or code == 'HADD' then
    -- In a table of its own, so that what is no number is known too.
    local before
    if code == 'ADD' then before = now.value else before = now.numbers[one[3]] end
    if before == nil then
      local text = false
      if now.kept and code == 'ADD' then text = redis.call('GET', key) end
      if now.kept and code == 'HADD' then text = redis.call('HGET', key, one[3]) end
      before = { whole(text) }
    end
    local after = sum(before[1], whole(one[#one]))
    if after == nil then
      return redis.error_reply('NOTINTEGER ' .. one.number
        .. ' what it holds is no whole number, or the sum is out of range')
    end
    if code == 'ADD' then now.value = { after } else now.numbers[one[3]] = { after } end
  end
end

local does = {
  GET = function(o) return redis.call('GET', o[2]) end,
  SET = function(o)
    if o[4] == '0' then redis.call('SET', o[2], o[3]) else redis.call('SET', o[2], o[3], 'PX', o[4]) end
    return 0
  end,
  DEL = function(o) redis.call('DEL', o[2]) return 0 end,
  EXP = function(o) redis.call('PEXPIRE', o[2], o[3]) return 0 end,
  -- Sums are answered as text: a number here holds only 53 bits.
  ADD = function(o) redis.call('INCRBY', o[2], o[3]) return redis.call('GET', o[2]) end,
  HGET = function(o) return redis.call('HGET', o[2], o[3]) end,
  HALL = function(o) return redis.call('HGETALL', o[2]) end,
  HSET = function(o)
    for i = 3, #o, 2 do redis.call('HSET', o[2], o[i], o[i + 1]) end
    return 0
  end,
  HDEL = function(o) redis.call('HDEL', o[2], o[3]) return 0 end,
  HADD = function(o) redis.call('HINCRBY', o[2], o[3], o[4]) return redis.call('HGET', o[2], o[3]) end,
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
  -- Asked for no entries it answers nil.
  XREV = function(o) return redis.call('XREVRANGE', o[2], o[3], '-', 'COUNT', o[4]) or {} end,
}
local answer = { failed }
for i = 1, #todo do answer[i + 1] = does[todo[i][1]](todo[i]) end
return answer
