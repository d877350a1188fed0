-- announce_run: show that a run fetches; returns all runs that have done so.
-- KEYS[1] fetching  hash  run -> what is known about it; ':version'
-- ARGV[1] run  ARGV[2] what is known about it  ARGV[3] a version that no other has
-- returns the hash, field by field; its version changes when a run is new
write_when_full(KEYS[1])
local is_new = redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) == 1
if is_new then redis.call('HSET', KEYS[1], ':version', ARGV[3]) end
return redis.call('HGETALL', KEYS[1])
