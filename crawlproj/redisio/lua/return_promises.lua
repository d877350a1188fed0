-- return_promises: give back pages that were promised to a process and are not fetched.
-- KEYS[1] counters  hash  promised: pages fetched, or lent to be; back:PROCESS: what that one gave back in all
-- ARGV[1] process  ARGV[2] how many it has given back in all, with those of now
-- returns how many came back: none when it is said again, which would let too many through
local before = tonumber(redis.call('HGET', KEYS[1], 'back:' .. ARGV[1]) or 0)
local now = ARGV[2] - before
if now <= 0 then return 0 end
redis.call('HSET', KEYS[1], 'back:' .. ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[1], 'promised', -now)
return now
