-- acquire_partition: make a shard the owner of a free partition, and put back what earlier owners had on loan.
-- KEYS[1] meta     hash    owner, epoch, until; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay bytes parked
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] owner  ARGV[2] now (ms; 0: the server's clock)  ARGV[3] how long it is owned without renewal (ms)
-- ARGV[4] delay of a domain (ms)  ARGV[5] JSON object domain -> delay (ms)  ARGV[6] an owner known to be dead, or ''
-- ARGV[7] how long a request of an owner not known to be dead may be on its way (ms)
-- returns {epoch, number of the last lease, leases put back}, or {0, owner, ms until it is free}
local now = tonumber(ARGV[2])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local meta = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'until', 'number')
local owner, epoch, till, number = meta[1] or '', tonumber(meta[2] or 0), tonumber(meta[3] or 0), tonumber(meta[4] or 0)
if owner == ARGV[1] then
  redis.call('HSET', KEYS[1], 'until', now + ARGV[3])
  return {epoch, number, 0}
end
if owner ~= '' and till > now and owner ~= ARGV[6] then return {0, owner, till - now} end
epoch = epoch + 1
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch, 'until', now + ARGV[3], 'sleep', 0)
local lent, delays = redis.call('ZREVRANGE', KEYS[4], 0, -1), cjson.decode(ARGV[5])
local flight, aside = owner == ARGV[6] and 0 or tonumber(ARGV[7]), 0
for _, token in ipairs(lent) do
  local lane, domain, entry = string.match(token, '^%d+ (%d) (%S+) (.*)$')
  redis.call('LPUSH', KEYS[5] .. lane .. ':' .. domain, entry)
  local state = redis.call('HGET', KEYS[3], domain)
  local due, rest, delay, parked = string.match(state, '^(%d+) %d+ (%d+ %d+ %d+ (%d+) %d+ (%S+))$')
  -- Nobody knows when the last request ended: of a dead owner not later than now, so a full delay is polite.
  due = math.max(tonumber(due), now + math.max(tonumber(delay), delays[domain] or tonumber(ARGV[4]), flight))
  redis.call('HSET', KEYS[3], domain, due .. ' 0 ' .. rest)
  if parked == '-' then redis.call('ZADD', KEYS[2], due, domain) else aside = aside + 1 end
end
redis.call('DEL', KEYS[4])
if #lent > 0 then
  redis.call('HINCRBY', KEYS[1], 'waiting', #lent - aside)
  redis.call('HINCRBY', KEYS[1], 'parked', aside)
  redis.call('HINCRBY', KEYS[1], 'reclaimed', #lent)
end
return {epoch, number, #lent}
