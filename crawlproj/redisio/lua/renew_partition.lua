-- renew_partition: keep a partition, and learn whether it has work.
-- KEYS[1] meta    hash  owner, epoch, until
-- KEYS[2] ready   zset  domain, scored by the time it is due (ms)
-- KEYS[3] parked  zset  domain, scored by the time it comes back (ms)
-- ARGV[1] epoch  ARGV[2] now (ms; 0: the server's clock)  ARGV[3] how long it is owned without renewal (ms)
-- returns {ms until the next domain is due (-1: none waits), whether a parked domain's time has come};
--         refuses an old epoch
local now, epoch = tonumber(ARGV[2]), redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is over, now ' .. tostring(epoch)) end
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('HSET', KEYS[1], 'until', now + ARGV[3])
local soonest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
local back = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
return {soonest and math.max(0, soonest - now) or -1, back and tonumber(back) <= now and 1 or 0}
