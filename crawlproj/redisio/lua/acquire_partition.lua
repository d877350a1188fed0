-- acquire_partition: make a shard the owner of a free partition; URLs leased to earlier owners wait again.
-- KEYS[1] meta     hash    owner, epoch, until; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] owner  ARGV[2] now (ms; 0: the server's clock)  ARGV[3] how long it is owned without renewal (ms)
-- ARGV[4] delay of a domain (ms)  ARGV[5] JSON object domain -> delay (ms)
-- ARGV[6] an owner known to be dead, or ''
-- ARGV[7] how long a request of an owner not known to be dead may be in flight (ms)
-- returns {epoch, number of the last lease, leases returned}, or {0, owner, ms until it is free}
local now = clock(ARGV[2])
local meta = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'until', 'number')
write_when_full(KEYS[1])
local owner = meta[1] or ''
local epoch, ends, number = tonumber(meta[2] or 0), tonumber(meta[3] or 0), tonumber(meta[4] or 0)
if owner == ARGV[1] then
  redis.call('HSET', KEYS[1], 'until', now + ARGV[3])
  return {epoch, number, 0}
end
if owner ~= '' and ends > now and owner ~= ARGV[6] then return {0, owner, ends - now} end
epoch = epoch + 1
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch, 'until', now + ARGV[3], 'sleep', 0)
local leased = redis.call('ZREVRANGE', KEYS[4], 0, -1)
local delays = cjson.decode(ARGV[5])
local flight = owner == ARGV[6] and 0 or tonumber(ARGV[7])
local parked = 0
for _, token in ipairs(leased) do
  local lane, domain, entry = read_lease(token)
  redis.call('LPUSH', KEYS[5] .. lane .. ':' .. domain, entry)
  local state = read_domain(redis.call('HGET', KEYS[3], domain))
  -- When the last request ended is unknown: of a dead owner not later than now, so a full delay is polite.
  local wait = math.max(tonumber(state.delay), delays[domain] or tonumber(ARGV[4]), flight)
  state.next = math.max(tonumber(state.next), now + wait)
  state.out = 0
  redis.call('HSET', KEYS[3], domain, write_domain(state))
  if state.parked == '-' then
    redis.call('ZADD', KEYS[2], state.next, domain)
  else
    parked = parked + 1
  end
end
redis.call('DEL', KEYS[4])
if #leased > 0 then
  redis.call('HINCRBY', KEYS[1], 'waiting', #leased - parked)
  redis.call('HINCRBY', KEYS[1], 'parked', parked)
  redis.call('HINCRBY', KEYS[1], 'reclaimed', #leased)
end
return {epoch, number, #leased}
