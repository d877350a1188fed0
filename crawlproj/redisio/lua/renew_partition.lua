-- renew_partition: keep a partition, and return whether it has work.
-- KEYS[1] meta    hash  owner, epoch, until; clock, wall, mine
-- KEYS[2] ready   zset  domain, scored by the time it is due (ms)
-- KEYS[3] parked  zset  domain, scored by the time it is released (ms)
-- KEYS[4] newcomers  list  time (ms), domain: of those never leased
-- ARGV[1] epoch  ARGV[2] now (ms)  ARGV[3] how long it is owned without renewal (ms)
-- ARGV[4] now by the server's clock (ms; 0: whatever it is)  ARGV[5] by the caller's
-- returns {ms until the next domain is due (-1: none waits), whether a parked domain is to be released};
--         refuses an old epoch
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return fenced(ARGV[1], epoch) end
local now, wall = tonumber(ARGV[2]), clock(ARGV[4])
write_when_full(KEYS[1])
redis.call('HSET', KEYS[1], 'until', wall + ARGV[3], 'clock', now, 'wall', wall, 'mine', ARGV[5])
local wait = next_due(KEYS[2], now, KEYS[4])
return {wait, next_due(KEYS[3], now) == 0 and 1 or 0}
