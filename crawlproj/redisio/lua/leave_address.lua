-- leave_address: note that the request inside an IP address has ended; the next may begin a delay later.
-- KEYS[1] address  hash  token, began and until of the request inside; free, took, tail, turn (times in ms)
-- ARGV[1] now (ms; 0: the server's clock)  ARGV[2] token  ARGV[3] delay (ms)
-- returns 1, or 0 when it was not inside, or no longer
-- Rounded up here and down where one enters: the gap is never shorter than the delay.
local now = clock(ARGV[1], math.ceil)
local state = redis.call('HMGET', KEYS[1], 'token', 'began', 'took')
if state[1] ~= ARGV[2] then return 0 end
-- About what requests take: one that hangs must not make the places of a long line rare.
local before = tonumber(state[3] or 0)
local took = math.min(now - state[2], 2 * before + ARGV[3])
if state[3] then took = math.floor((7 * before + took) / 8) end
-- Removed first: that never needs memory, so this is done on a full Redis, too.
redis.call('HDEL', KEYS[1], 'token', 'began', 'until')
redis.call('HSET', KEYS[1], 'free', now + ARGV[3], 'took', took)
return 1
