-- reclaim_promises: take back the pages promised to processes that died before they leased or returned them.
-- KEYS[1] promises  hash  promised: pages fetched, or leased; granted: all that ever were promised
-- ARGV[1] promised and  ARGV[2] granted as they were read  ARGV[3] pages fetched then, none being leased
-- returns 1, or 0 if pages were promised or returned meanwhile
local now = redis.call('HMGET', KEYS[1], 'promised', 'granted')
if (now[1] or '0') ~= ARGV[1] or (now[2] or '0') ~= ARGV[2] then return 0 end
write_when_full(KEYS[1])
redis.call('HSET', KEYS[1], 'promised', ARGV[3])
return 1
