-- fail_page: take a page from a parser that could not read it; it is retried, or becomes a dead letter.
-- KEYS[1] taken     list  of the parser's page envelopes
-- KEYS[2] pages     list  of page envelopes
-- KEYS[3] dead      hash  page -> what is known about a dead letter
-- KEYS[4] letters   hash  page -> envelope of a dead letter
-- KEYS[5] ages      zset  dead letters in Redis, scored by their time (ms)
-- KEYS[6] counters  hash  counter -> number
-- ARGV[1] page  ARGV[2] its element of the list  ARGV[3] how often it may fail
-- ARGV[4] what is known about it  ARGV[5] time (ms)
-- returns how often it has failed now, 0 when it became a dead letter, -1 when the parser no longer had it
if redis.call('LREM', KEYS[1], 1, ARGV[2]) == 0 then return -1 end
redis.call('HINCRBY', KEYS[6], 'failed', 1)
-- The count travels with the page, so that it is gone once the page is stored.
local before, envelope = string.match(ARGV[2], '^failed (%d+) (.*)$')
local failed = (before or 0) + 1
envelope = envelope or ARGV[2]
if failed < tonumber(ARGV[3]) then
  local again = 'failed ' .. failed .. ' ' .. envelope
  redis.call('RPUSH', KEYS[2], again)
  redis.call('HINCRBY', KEYS[6], 'queued_bytes', #again)
  return failed
end
local known = redis.call('HSTRLEN', KEYS[3], ARGV[1])
if known == 0 then redis.call('HINCRBY', KEYS[6], 'dead', 1) end
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
redis.call('HSET', KEYS[4], ARGV[1], envelope)
local is_new = redis.call('ZADD', KEYS[5], ARGV[5], ARGV[1]) == 1
redis.call('HINCRBY', KEYS[6], 'dead_bytes', #ARGV[4] + (is_new and #envelope or -known))
return 0
