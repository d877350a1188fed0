-- promise_pages: reserve some of the pages a run may still fetch, for a shard that is about to lease.
-- KEYS[1] promises  hash  promised: pages fetched, or leased; granted: all that ever were promised
-- ARGV[1] wanted  ARGV[2] most in all
-- returns how many were promised; what is not leased or not fetched must be returned
local promised = tonumber(redis.call('HGET', KEYS[1], 'promised') or 0)
local granted = math.max(0, math.min(tonumber(ARGV[1]), ARGV[2] - promised))
if granted > 0 then
  write_when_full(KEYS[1])
  redis.call('HINCRBY', KEYS[1], 'promised', granted)
  redis.call('HINCRBY', KEYS[1], 'granted', granted)
end
return granted
