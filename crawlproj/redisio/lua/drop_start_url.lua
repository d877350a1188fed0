-- drop_start_url: remove the start URL that a shard took first, once it is admitted.
-- KEYS[1] taken   list  start URLs of the shard, oldest first
-- KEYS[2] record  hash  start_urls:SHARD: how many it has dropped; state
-- ARGV[1] shard  ARGV[2] how many it had dropped when it read this one
-- returns 1, or 0, with nothing changed, when it was dropped before or the run is gone
local field = 'start_urls:' .. ARGV[1]
local record = redis.call('HMGET', KEYS[2], 'state', field)
if not record[1] or (record[2] or '0') ~= ARGV[2] then return 0 end
redis.call('LPOP', KEYS[1])
redis.call('HINCRBY', KEYS[2], field, 1)
return 1
