-- park_domains: do not fetch domains until a time; their URLs are kept, and the run can end without them.
-- KEYS[1] meta     hash    epoch; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] parked   zset    domain, scored by the time it is released (ms)
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] epoch  ARGV[2] now (ms)
-- ARGV[3..] per domain: domain, reason, how long (ms; -1: until released)
-- returns how many were parked; one that is parked already stays as it is
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return fenced(ARGV[1], epoch) end
local now, parked = tonumber(ARGV[2]), 0
write_when_full(KEYS[1])
for i = 3, #ARGV, 3 do
  local domain, reason, lasts = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local text = redis.call('HGET', KEYS[3], domain)
  local state = read_domain(text)
  if text and state.parked == '-' then
    local size = count_waiting(KEYS[5], domain, state)
    state.parked = reason
    redis.call('ZREM', KEYS[2], domain)
    redis.call('ZADD', KEYS[4], lasts == '-1' and '+inf' or now + lasts, domain)
    redis.call('HSET', KEYS[3], domain, write_domain(state))
    redis.call('HINCRBY', KEYS[1], 'waiting', 0 - size)
    redis.call('HINCRBY', KEYS[1], 'parked', size)
    redis.call('HINCRBY', KEYS[1], 'parked:' .. reason, 1)
    parked = parked + 1
  end
end
return parked
