-- move_letter: take a dead letter that is on disk out of Redis.
-- KEYS[1] dead      hash  page -> what is known about a dead letter
-- KEYS[2] letters   hash  page -> envelope of a dead letter
-- KEYS[3] ages      zset  dead letters in Redis, scored by their time (ms)
-- KEYS[4] moves     hash  file -> in or out
-- KEYS[5] counters  hash  counter -> number
-- ARGV[1] page  ARGV[2] the file that holds it
-- returns 1, or 0 when it had left Redis before: the file does not count then
if redis.call('HGET', KEYS[4], ARGV[2]) == 'in' then return 1 end
if not take_letter(KEYS[1], KEYS[2], KEYS[3], KEYS[5], ARGV[1]) then return 0 end
redis.call('HSET', KEYS[4], ARGV[2], 'in')
return 1
