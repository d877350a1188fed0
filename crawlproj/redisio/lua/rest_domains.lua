-- rest_domains: let domains rest that are known to need it; any process may.
-- KEYS[1] meta     hash  clock, wall, mine
-- KEYS[2] ready    zset  domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash  domain -> state
-- ARGV[1] now (ms; 0: by the owner's clock)  ARGV[2] by the caller's  ARGV[3..] domain, how long (ms)
-- returns how many; also one that is not known here, since its URLs may be found again
local meta = redis.call('HMGET', KEYS[1], 'clock', 'wall', 'mine')
local now = partition_time(ARGV[1], meta[1], meta[2], meta[3], ARGV[2])
write_when_full(KEYS[1])
for i = 3, #ARGV, 2 do
  local state = read_domain(redis.call('HGET', KEYS[3], ARGV[i]))
  -- A newcomer is one no more; of others, those that are in `ready` rest there.
  local ways = state.waiting ~= '' and is_newcomer(state) and 'CH' or 'XX'
  state.next = math.max(tonumber(state.next), now + ARGV[i + 1])
  redis.call('HSET', KEYS[3], ARGV[i], write_domain(state))
  redis.call('ZADD', KEYS[2], ways, state.next, ARGV[i])
end
return (#ARGV - 2) / 2
