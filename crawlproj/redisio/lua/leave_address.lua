-- leave_address: note that the request inside an IP address has ended; the next may begin a delay later.
-- KEYS[1] address  hash  token, began and until of the request inside; free, took, tail and turn (all times in ms)
-- ARGV[1] now (ms; 0: the server's clock)  ARGV[2] token  ARGV[3] delay (ms)
-- returns 1, or 0 when it was not inside, or no longer
local now, time = tonumber(ARGV[1]), redis.call('TIME')
-- Rounded up here and down where one enters: the gap is never shorter than the delay.
if now == 0 then now = time[1] * 1000 + math.ceil(time[2] / 1000) end
local state = redis.call('HMGET', KEYS[1], 'token', 'began', 'took')
if state[1] ~= ARGV[2] then return 0 end
-- About what requests take: one that hangs must not make the places of a long line rare.
local before = tonumber(state[3] or 0)
local took = math.min(now - state[2], 2 * before + ARGV[3])
if state[3] then took = math.floor((7 * before + took) / 8) end
redis.call('HSET', KEYS[1], 'free', now + ARGV[3], 'took', took)
redis.call('HDEL', KEYS[1], 'token', 'began', 'until')
return 1
