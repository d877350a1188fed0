-- unpark_domains: release parked domains: those whose time has come, or those named, whatever their time.
-- KEYS[1] meta     hash    counters; sleep; clock, wall, mine
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] parked   zset    domain, scored by the time it is released (ms)
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] now (ms; 0: by the owner's clock)  ARGV[2] by the caller's  ARGV[3] wake channel
-- ARGV[4] wake message  ARGV[5..] domains (none: those due)
-- returns how many were released
local meta, names = redis.call('HMGET', KEYS[1], 'clock', 'wall', 'mine'), {unpack(ARGV, 5)}
local now = partition_time(ARGV[1], meta[1], meta[2], meta[3], ARGV[2])
if #names == 0 then names = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', 0, 1000) end
local freed, size = 0, 0
for _, domain in ipairs(names) do
  if redis.call('ZREM', KEYS[4], domain) == 1 then
    local state = read_domain(redis.call('HGET', KEYS[3], domain))
    local waiting = count_waiting(KEYS[5], domain, state)
    redis.call('HINCRBY', KEYS[1], 'parked:' .. state.parked, -1)
    if state.parked == 'byte_budget' then state.bytes = 0 end
    -- It may have been parked a moment ago, so it waits one more delay.
    state.next, state.parked = now + state.delay, '-'
    redis.call('HSET', KEYS[3], domain, write_domain(state))
    if waiting > 0 and state.out == '0' then redis.call('ZADD', KEYS[2], state.next, domain) end
    freed, size = freed + 1, size + waiting
  end
end
if freed > 0 then
  redis.call('HINCRBY', KEYS[1], 'waiting', size)
  redis.call('HINCRBY', KEYS[1], 'parked', 0 - size)
  redis.call('HSET', KEYS[1], 'sleep', 0)
  redis.call('PUBLISH', ARGV[3], ARGV[4])
end
return freed
