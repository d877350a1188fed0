-- commit_segment: acknowledge a parser's oldest pages and record the segment they are in, and the file their
--                 links are in if these were not admitted.
-- KEYS[1] taken     list  of the parser's page envelopes
-- KEYS[2] segments  hash  segment -> its record
-- KEYS[3] counters  hash  counter -> number
-- KEYS[4] spills    hash  file of links -> how many, host
-- ARGV[1] segment  ARGV[2] pages in it  ARGV[3] its record  ARGV[4] file of links ('': none)
-- ARGV[5] how many, host  ARGV[6..] counter, amount
-- returns 1, or 0 when it was committed before; refuses when the list was reclaimed
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
if redis.call('LLEN', KEYS[1]) < tonumber(ARGV[2]) then
  return redis.error_reply('FENCED the pages of segment ' .. ARGV[1] .. ' were reclaimed before its commit')
end
redis.call('LTRIM', KEYS[1], ARGV[2], -1)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[4], ARGV[4], ARGV[5]) end
for i = 6, #ARGV, 2 do redis.call('HINCRBY', KEYS[3], ARGV[i], ARGV[i + 1]) end
return 1
