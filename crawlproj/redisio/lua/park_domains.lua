-- park_domains: set domains aside until a time: their URLs are kept, and the run can end without them.
-- KEYS[1] meta     hash    epoch; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay bytes parked
-- KEYS[4] parked   zset    domain, scored by the time it comes back (ms)
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] epoch  ARGV[2] now (ms; 0: the server's clock)  ARGV[3..] per domain: domain, reason, how long (ms; -1: for good)
-- returns how many were parked; one that is parked already stays as it is
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is over, now ' .. tostring(epoch)) end
local now, time = tonumber(ARGV[2]), redis.call('TIME')
if now == 0 then now = time[1] * 1000 + math.floor(time[2] / 1000) end
local parked = 0
for i = 3, #ARGV, 3 do
  local domain, size = ARGV[i], 0
  local state = string.match(redis.call('HGET', KEYS[3], domain) or '', '^(.* )%-$')
  if state then
    for lane = 0, 2 do size = size + redis.call('LLEN', KEYS[5] .. lane .. ':' .. domain) end
    redis.call('ZREM', KEYS[2], domain)
    redis.call('ZADD', KEYS[4], ARGV[i + 2] == '-1' and '+inf' or now + ARGV[i + 2], domain)
    redis.call('HSET', KEYS[3], domain, state .. ARGV[i + 1])
    redis.call('HINCRBY', KEYS[1], 'waiting', 0 - size)
    redis.call('HINCRBY', KEYS[1], 'parked', size)
    redis.call('HINCRBY', KEYS[1], 'parked:' .. ARGV[i + 1], 1)
    parked = parked + 1
  end
end
return parked
