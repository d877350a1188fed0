-- keep_robots: keep the rules of sites for everyone, and make room for them.
-- KEYS[1] robots  hash  origin -> time they expire (ms), a space, rules; 'bytes' -> what all of them take
-- KEYS[2] ages    zset  origin, scored by the time its rules expire (ms)
-- ARGV[1] now (ms; 0: the server's clock)  ARGV[2] bytes they may take
-- ARGV[3] how long expired rules are kept (ms): they say what held before, and how often a site failed
-- ARGV[4..] per origin: ms until its rules expire, origin, rules
-- returns {bytes taken now, origins put out}; rules that would take more than a quarter of the room are not kept
local now, time = tonumber(ARGV[1]), redis.call('TIME')
if now == 0 then now = time[1] * 1000 + math.floor(time[2] / 1000) end
local room, before = tonumber(ARGV[2]), now - ARGV[3]
local bytes, out = tonumber(redis.call('HGET', KEYS[1], 'bytes') or 0), 0
-- What an entry takes in both keys, about.
local function cost(origin, size) return 2 * #origin + size + 200 end
local function drop(origin)
  local size = redis.call('HSTRLEN', KEYS[1], origin)
  if size == 0 then return end
  redis.call('HDEL', KEYS[1], origin)
  redis.call('ZREM', KEYS[2], origin)
  bytes = bytes - cost(origin, size)
end
for i = 4, #ARGV, 3 do
  local expires = string.format('%.0f', now + ARGV[i])
  local origin, record = ARGV[i + 1], expires .. ' ' .. ARGV[i + 2]
  drop(origin)
  if cost(origin, #record) <= room / 4 then
    redis.call('HSET', KEYS[1], origin, record)
    redis.call('ZADD', KEYS[2], expires, origin)
    bytes = bytes + cost(origin, #record)
  end
end
-- What expires first goes first. A limit for what has only expired: nobody should wait for the tidying.
repeat
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local goes = first[1] and (bytes > room or (tonumber(first[2]) < before and out < 100))
  if goes then drop(first[1]); out = out + 1 end
until not goes
redis.call('HSET', KEYS[1], 'bytes', bytes)
return {bytes, out}
