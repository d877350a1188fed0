-- acquire_partition: make a shard the owner of a free partition; URLs leased to earlier owners wait again.
-- KEYS[1] meta     hash    owner, epoch, until; clock, wall, mine, server, rested; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- KEYS[6] newcomers  list  time (ms), domain: of those never leased
-- ARGV[1] owner  ARGV[2] now (ms; 0: the server's clock)  ARGV[3] how long it is owned without renewal (ms)
-- ARGV[4] delay of a domain (ms)  ARGV[5] JSON object domain -> delay (ms)
-- ARGV[6] owners, or processes (what is before the dot), known to be dead, each between spaces
-- ARGV[7] how long a request of an owner that we have not heard of may be in flight (ms)
-- ARGV[8] now by the clock of the caller (ms)
-- ARGV[9] the `until` of an owner that has not renewed it for as long as it may, by the caller's clock, or 0
-- ARGV[10] whether the caller was the last owner, as far as it knows: 1, 0 also for the partition of a shard
--          that is absent, or '' if it has just started
-- ARGV[11] the run id of the Redis in which the run was created, '' if unknown
-- ARGV[12] how long a request of an owner whose hold has expired may still be in flight (ms)
-- returns {epoch, number of the last lease, leases returned, now,
--          ms in which requests of others may be in flight},
--         or {'', owner, ms until it is free, until}
local wall = clock(ARGV[2])
local meta = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'until', 'number',
  'clock', 'wall', 'mine', 'server')
write_when_full(KEYS[1])
local owner, ends, number = meta[1] or '', tonumber(meta[3] or 0), tonumber(meta[4] or 0)
local function is_listed(name) return string.find(ARGV[6], ' ' .. name .. ' ', 1, true) end
local is_dead = is_listed(owner) or is_listed(string.match(owner, '^[^.]*'))
if owner ~= '' and owner ~= ARGV[1] and ends > wall and not is_dead and ends ~= tonumber(ARGV[9]) then
  return {'', owner, ends - wall, ends}
end
local now = partition_time(ARGV[2], meta[5], meta[6], meta[7], ARGV[8])
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
redis.call('HSET', KEYS[1], 'until', wall + ARGV[3],
  'clock', now, 'wall', wall, 'mine', ARGV[8], 'server', server)
if owner == ARGV[1] then return {meta[2], number, 0, now, 0} end
local epoch = (string.match(meta[2] or '0', '^%d+') + 1) .. ':' .. ARGV[1]
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch, 'sleep', 0)

local delays, parked = cjson.decode(ARGV[5]), 0
local function rest(domain, least)
  local state = read_domain(redis.call('HGET', KEYS[3], domain))
  local delay = math.max(tonumber(state.delay), delays[domain] or tonumber(ARGV[4]))
  state.next = math.max(tonumber(state.next), now + delay + least)
  return state
end
local flight = is_dead and 0 or tonumber(ARGV[12])
local others = owner ~= '' and flight or 0
local leased = redis.call('ZREVRANGE', KEYS[4], 0, -1)
for _, token in ipairs(leased) do
  local lane, domain, entry = read_lease(token)
  -- When the last request ended is unknown: of a dead owner not later than now, so a full delay is polite.
  local state = rest(domain, flight)
  state.out = 0
  enqueue(KEYS[5], domain, state, lane, {entry}, true)
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
local before = meta[8] or ARGV[11]
if before == server or before == '' then return {epoch, number, #leased, now, others} end
-- Another server than the last time may have lost requests of a moment ago: every domain rests. If an owner
-- that is lost, too, may have requests in flight, for as long as these take; else until all those that are
-- alive have said which domains must rest.
if ARGV[10] ~= '' then others = ARGV[10] == '0' and tonumber(ARGV[7]) or 0 end
local least = math.max(others, 2000)
-- Also those that are not known here any more.
redis.call('HSET', KEYS[1], 'rested', now + least + ARGV[4])
local names = redis.call('ZRANGE', KEYS[2], 0, -1)
-- Newcomers, too: they may have been leased in what is lost.
for _, text in ipairs(redis.call('LRANGE', KEYS[6], 0, -1)) do
  local domain = string.match(text, ' (.*)')
  if is_newcomer(read_domain(redis.call('HGET', KEYS[3], domain))) then names[#names + 1] = domain end
end
redis.call('DEL', KEYS[6])
for _, domain in ipairs(names) do
  local state = rest(domain, least)
  redis.call('HSET', KEYS[3], domain, write_domain(state))
  redis.call('ZADD', KEYS[2], state.next, domain)
end
return {epoch, number, #leased, now, others}
