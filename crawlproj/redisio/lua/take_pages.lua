-- take_pages: move pages from the head of the queue onto a parser's own list.
-- KEYS[1] pages    list  of page envelopes
-- KEYS[2] taken    list  of the parser's page envelopes
-- KEYS[3] parsers  hash  parser -> heartbeat
-- KEYS[4] counters hash  counter -> number
-- KEYS[5..] record  none, or the hash of the run: created_ms
-- ARGV[1] parser  ARGV[2] pages it holds already  ARGV[3] most pages to take
-- ARGV[4] bytes after which to stop
-- returns {created_ms, the page envelopes behind those it holds}; refuses when the list was reclaimed
local held, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local length = redis.call('LLEN', KEYS[2])
-- A list without a registered parser would never be reclaimed; and a copy of this call that comes late, after
-- the list was reclaimed, must not fill it again.
if length < held or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then
  return redis.error_reply('FENCED the pages of parser ' .. ARGV[1] .. ' were reclaimed while it was silent')
end
write_when_full(KEYS[1])
-- Longer than what it holds: an earlier answer was lost; return it again.
if length == held then
  local bytes = 0
  for _ = 1, most do
    local page = redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
    if not page then break end
    bytes = bytes + #page
    if bytes >= tonumber(ARGV[4]) then break end
  end
  if bytes > 0 then redis.call('HINCRBY', KEYS[4], 'queued_bytes', -bytes) end
end
local record = unpack(KEYS, 5)
local created = record and redis.call('HGET', record, 'created_ms') or ''
return {created, redis.call('LRANGE', KEYS[2], held, held + most - 1)}
