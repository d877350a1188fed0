-- announce_run: show that a run fetches, or that it no longer does.
-- KEYS[1] fetching  hash  run -> what is known about it; ':version'
-- ARGV[1] run  ARGV[2] what is known about it, a JSON object ('': it no longer fetches)
-- ARGV[3] a version that no other has
-- returns all runs that fetch, field by field; the version changes when a run is new
write_when_full(KEYS[1])
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  -- Only the version is left.
  if redis.call('HLEN', KEYS[1]) <= 1 then redis.call('DEL', KEYS[1]) end
  return {}
end
local known = '{"at_ms":' .. clock(0) .. ',' .. string.sub(ARGV[2], 2)
local is_new = redis.call('HSET', KEYS[1], ARGV[1], known) == 1
if is_new then redis.call('HSET', KEYS[1], ':version', ARGV[3]) end
return redis.call('HGETALL', KEYS[1])
