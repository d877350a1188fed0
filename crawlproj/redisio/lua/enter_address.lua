-- enter_address: start the one request at an IP address, or give its domain a place in the queue.
-- KEYS[1] address  hash  token, began and until of the request inside; free, took, tail, turn (times in ms)
-- KEYS[2] line     zset  domains waiting, scored by the time of their place (ms)
-- ARGV[1] now (ms; 0: the server's clock)  ARGV[2] token  ARGV[3] domain  ARGV[4] delay (ms)
-- ARGV[5] how long the request may be in flight (ms): if its end is never reported, it counts as ended then
-- returns 0 if it may start now, else the ms after which to retry
local now = clock(ARGV[1])
local token, domain, delay, flight = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local state = redis.call('HMGET', KEYS[1], 'token', 'began', 'until', 'free', 'took', 'tail', 'turn')
local inside = state[1]
local began, ends, free = tonumber(state[2] or 0), tonumber(state[3] or 0), tonumber(state[4] or 0)
local took, tail, turn = tonumber(state[5] or 0), tonumber(state[6] or 0), tonumber(state[7] or 0)
write_when_full(KEYS[1])
local busy = inside and ends > now
if busy then
  free = math.max(now, began + took) + delay
elseif inside then
  free = ends + delay
end

-- A domain that does not retry loses its place.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - flight)
local place = tonumber(redis.call('ZSCORE', KEYS[2], domain) or nil)
-- Without a place: only if no other domain's place is still to come.
local due = (place or tail) <= now
local wait = 0
if inside == token or (due and not busy and free <= now) then
  redis.call('HSET', KEYS[1], 'token', token, 'began', now, 'until', now + flight)
  redis.call('ZREM', KEYS[2], domain)
else
  if due and turn <= now then
    -- The next turn is promised to one at a time: otherwise all that are due would retry at once.
    place = free
    turn = place
  elseif not place or due then
    place = math.max(free, tail + delay + took)
  end
  tail = math.max(tail, place)
  redis.call('ZADD', KEYS[2], place, domain)
  redis.call('HSET', KEYS[1], 'tail', tail, 'turn', turn)
  wait = place - now
end
local lasts = math.max(0, tail - now) + flight + delay
redis.call('PEXPIRE', KEYS[1], lasts)
redis.call('PEXPIRE', KEYS[2], lasts)
return wait
