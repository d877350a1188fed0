-- merge_segments: record a merged segment, and drop the records of those it replaces.
-- KEYS[1] segments  hash    segment -> its record
-- KEYS[2] merger    string  instance of who merges, a space, and what is known about it
-- ARGV[1] instance of who merges ('': somebody finishes a merge)  ARGV[2] 1: also if some are not recorded
-- ARGV[3] segment  ARGV[4] its record  ARGV[5..] the segments it replaces
-- returns 1 when it is recorded, 0 with nothing done when some are not; refuses who no longer holds the name
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1 then return 1 end
if ARGV[1] ~= '' and string.match(redis.call('GET', KEYS[2]) or '', '^%S+') ~= ARGV[1] then
  return redis.error_reply('FENCED another process merges these segments')
end
for i = 5, #ARGV do
  if ARGV[2] ~= '1' and redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then return 0 end
end
write_when_full(KEYS[1])
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
for i = 5, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
return 1
