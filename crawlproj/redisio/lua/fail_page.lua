-- fail_page: take a page from a parser that could not read it; it is retried, or becomes a dead letter.
-- KEYS[1] taken     list  of the parser's page envelopes
-- KEYS[2] pages     list  of page envelopes
-- KEYS[3] attempts  hash  page -> how often it failed
-- KEYS[4] dead      hash  page -> what is known about a dead letter
-- KEYS[5] letters   hash  page -> envelope of a dead letter
-- KEYS[6] counters  hash  counter -> number
-- ARGV[1] page  ARGV[2] its envelope  ARGV[3] how often it may fail  ARGV[4] what is known about it
-- returns how often it has failed now, 0 when it became a dead letter, -1 when the parser no longer had it
if redis.call('LREM', KEYS[1], 1, ARGV[2]) == 0 then return -1 end
redis.call('HINCRBY', KEYS[6], 'failed', 1)
local failed = redis.call('HINCRBY', KEYS[3], ARGV[1], 1)
if failed < tonumber(ARGV[3]) then
  redis.call('RPUSH', KEYS[2], ARGV[2])
  redis.call('HINCRBY', KEYS[6], 'queued_bytes', #ARGV[2])
  return failed
end
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[4])
redis.call('HSET', KEYS[5], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[6], 'dead', 1)
return 0
