-- replay_page: put a dead letter back onto the page queue.
-- KEYS[1] pages     list  of page envelopes
-- KEYS[2] dead      hash  page -> what is known about a dead letter
-- KEYS[3] letters   hash  page -> envelope of a dead letter
-- KEYS[4] counters  hash  counter -> number
-- ARGV[1] page
-- returns 1, or 0 when there is no such dead letter
local envelope = redis.call('HGET', KEYS[3], ARGV[1])
if not envelope then return 0 end
redis.call('RPUSH', KEYS[1], envelope)
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HINCRBY', KEYS[4], 'queued_bytes', #envelope)
redis.call('HINCRBY', KEYS[4], 'dead', -1)
return 1
