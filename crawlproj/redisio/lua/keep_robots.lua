-- keep_robots: cache the rules of sites, and evict old ones to make room.
-- KEYS[1] robots  hash  origin -> time they expire (ms), a space, rules; 'bytes' -> what all of them take
-- KEYS[2] ages    zset  origin, scored by the time its rules expire (ms)
-- ARGV[1] now (ms; 0: the server's clock)  ARGV[2] bytes they may take
-- ARGV[3] how long expired rules are kept (ms): they say what applied before, and how often a site failed
-- ARGV[4..] per origin: ms until its rules expire, origin, rules
-- returns {bytes taken now, origins evicted}; rules that would take over a quarter of the room are not kept
local now = clock(ARGV[1])
local room, before = tonumber(ARGV[2]), now - ARGV[3]
local bytes, out = tonumber(redis.call('HGET', KEYS[1], 'bytes') or 0), 0
write_when_full(KEYS[1])
-- About what an entry takes in both keys.
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
-- What expires first is evicted first. Of what has merely expired only some: no call should take long.
repeat
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local goes = first[1] and (bytes > room or (tonumber(first[2]) < before and out < 100))
  if goes then
    drop(first[1])
    out = out + 1
  end
until not goes
redis.call('HSET', KEYS[1], 'bytes', bytes)
return {bytes, out}
