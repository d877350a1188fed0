-- replay_page: put a dead letter back onto the page queue, from Redis or from the files that hold it.
-- KEYS[1] pages     list  of page envelopes
-- KEYS[2] dead      hash  page -> what is known about a dead letter
-- KEYS[3] letters   hash  page -> envelope of a dead letter
-- KEYS[4] ages      zset  dead letters in Redis, scored by their time (ms)
-- KEYS[5] moves     hash  file -> in or out
-- KEYS[6] counters  hash  counter -> number
-- ARGV[1] page  ARGV[2] its envelope on disk  ARGV[3..] the files that hold it
-- returns 1, or 0 when there is no such dead letter or it was replayed before
local envelope = take_letter(KEYS[2], KEYS[3], KEYS[4], KEYS[6], ARGV[1])
if not envelope then
  if #ARGV < 3 or redis.call('HGET', KEYS[5], ARGV[3]) == 'out' then return 0 end
  envelope = ARGV[2]
end
redis.call('RPUSH', KEYS[1], envelope)
redis.call('HINCRBY', KEYS[6], 'queued_bytes', #envelope)
redis.call('HINCRBY', KEYS[6], 'dead', -1)
-- Until the files are removed: they no longer count.
for i = 3, #ARGV do redis.call('HSET', KEYS[5], ARGV[i], 'out') end
return 1
