-- unpark_domains: let parked domains go on: those whose time has come, or those named, whatever their time.
-- KEYS[1] meta     hash    counters; sleep
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay bytes parked
-- KEYS[4] parked   zset    domain, scored by the time it comes back (ms)
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] now (ms; 0: the server's clock)  ARGV[2] wake channel  ARGV[3] wake message  ARGV[4..] domains (none: those due)
-- returns how many go on
local now, time, names, size = tonumber(ARGV[1]), redis.call('TIME'), {unpack(ARGV, 4)}, 0
if now == 0 then now = time[1] * 1000 + math.floor(time[2] / 1000) end
if #names == 0 then names = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', 0, 1000) end
local freed = 0
for _, domain in ipairs(names) do
  if redis.call('ZREM', KEYS[4], domain) == 1 then
    local state = {string.match(redis.call('HGET', KEYS[3], domain), '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')}
    local waits = 0
    for lane = 0, 2 do waits = waits + redis.call('LLEN', KEYS[5] .. lane .. ':' .. domain) end
    -- It may have been parked a moment ago, so it rests once more.
    if state[8] == 'byte_budget' then state[7] = 0 end
    redis.call('HINCRBY', KEYS[1], 'parked:' .. state[8], -1)
    state[1], state[8] = now + state[6], '-'
    redis.call('HSET', KEYS[3], domain, table.concat(state, ' '))
    if waits > 0 and state[2] == '0' then redis.call('ZADD', KEYS[2], state[1], domain) end
    freed, size = freed + 1, size + waits
  end
end
if freed > 0 then
  redis.call('HINCRBY', KEYS[1], 'waiting', size)
  redis.call('HINCRBY', KEYS[1], 'parked', 0 - size)
  redis.call('HSET', KEYS[1], 'sleep', 0)
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return freed
