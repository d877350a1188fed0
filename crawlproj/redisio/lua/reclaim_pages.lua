-- reclaim_pages: return a parser's pages to the head of the queue, in their order, and forget the parser.
-- KEYS[1] pages     list  of page envelopes
-- KEYS[2] taken     list  of the parser's page envelopes
-- KEYS[3] parsers   hash  parser -> heartbeat
-- KEYS[4] counters  hash  counter -> number
-- ARGV[1] parser  ARGV[2] the heartbeat it was judged by
-- returns how many pages, or -1 when the parser showed a newer heartbeat or is gone
if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then return -1 end
write_when_full(KEYS[1])
local count, bytes = 0, 0
local page = redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', 'LEFT')
while page do
  count, bytes = count + 1, bytes + #page
  page = redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', 'LEFT')
end
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HINCRBY', KEYS[4], 'queued_bytes', bytes)
redis.call('HINCRBY', KEYS[4], 'taken_back', count)
return count
