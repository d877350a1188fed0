-- drop_start_url: remove the start URL that a shard took first, once it is admitted.
-- KEYS[1] taken    list  start URLs of the shard, oldest first
-- KEYS[2] dropped  hash  shard -> how many it has dropped
-- KEYS[3..] record  none, or the hash of the run: state
-- ARGV[1] shard  ARGV[2] how many it had dropped when it read this one
-- returns 1, or 0, with nothing changed, when it was dropped before or the run is gone
local record = unpack(KEYS, 3)
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if record and redis.call('HEXISTS', record, 'state') == 0 then return 0 end
if (redis.call('HGET', KEYS[2], ARGV[1]) or '0') ~= ARGV[2] then return 0 end
redis.call('LPOP', KEYS[1])
redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
return 1
