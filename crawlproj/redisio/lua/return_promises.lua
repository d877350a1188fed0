-- return_promises: return pages that were promised to a process and not fetched.
-- KEYS[1] promises  hash  promised: pages fetched, or leased; back:PROCESS: what it has returned in all
-- ARGV[1] process  ARGV[2] how many it has returned in all, including now
-- returns how many that changes: none if the call is repeated
local before = tonumber(redis.call('HGET', KEYS[1], 'back:' .. ARGV[1]) or 0)
local now = ARGV[2] - before
if now <= 0 then return 0 end
write_when_full(KEYS[1])
redis.call('HSET', KEYS[1], 'back:' .. ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[1], 'promised', -now)
return now
