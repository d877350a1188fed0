-- admit_urls: take in candidates never seen before, and make their domains ready.
-- KEYS[1] meta     hash    counters; sleep; clock
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] seen     prefix  of sets of fingerprints, by bucket
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- KEYS[6] newcomers  list  time (ms), domain: of those never leased
-- ARGV[1] now (ms; 0: as the owner last wrote it)  ARGV[2] URLs a domain may have (0: any)
-- ARGV[3] wake channel  ARGV[4] wake message  ARGV[5] 1: also when Redis is full
-- ARGV[6..] per domain: domain, count, then count times: mark, lane, entry
-- returns {admitted, seen before, over the domain's budget}
if ARGV[5] == '1' then write_when_full(KEYS[1]) end
local budget = tonumber(ARGV[2])
local meta = redis.call('HMGET', KEYS[1], 'seen', 'sleep', 'clock')
local now = clock(ARGV[1] == '0' and meta[3] or ARGV[1])
local seen, sleep = tonumber(meta[1] or 0), tonumber(meta[2] or 0)

-- `seen` grows by linear hashing: one bucket for every 200 fingerprints, the next one split when due,
-- so that none comes near the 512 members beyond which Redis gives up the compact intset.
local buckets, span = math.floor(seen / 200) + 1, 1
while span < buckets do span = span * 2 end
local function bucket_of(mark)
  local i = string.sub(mark, -9) % span
  return i < buckets and i or i - span / 2
end
local function split()
  buckets = buckets + 1
  if span < buckets then span = span * 2 end
  local from, moved = KEYS[4] .. (buckets - 1 - span / 2), {}
  for _, mark in ipairs(redis.call('SMEMBERS', from)) do
    if bucket_of(mark) == buckets - 1 then moved[#moved + 1] = mark end
  end
  call_in_parts('SREM', from, moved)
  call_in_parts('SADD', KEYS[4] .. (buckets - 1), moved)
end

local names, starts, i = {}, {}, 6
while ARGV[i] do
  names[#names + 1], starts[#starts + 1] = ARGV[i], i + 2
  i = i + 2 + 3 * ARGV[i + 1]
end
starts[#starts + 1] = i + 2
local states = call_in_parts('HMGET', KEYS[3], names)
local admitted, parked, known, over = 0, 0, 0, 0
local soonest, changed, ready, newcomers = sleep, {}, {'NX'}, {}
for n, domain in ipairs(names) do
  -- Its state is read only if it is needed: most links of a page are known.
  local room, fresh, queues = math.huge, 0, {}
  if budget > 0 then room = budget - read_domain(states[n]).admitted end
  for at = starts[n], starts[n + 1] - 3, 3 do
    local mark, lane = ARGV[at], ARGV[at + 1]
    if fresh >= room then
      over = over + 1
    elseif redis.call('SADD', KEYS[4] .. bucket_of(mark), mark) == 0 then
      known = known + 1
    else
      seen = seen + 1
      if seen >= buckets * 200 then split() end
      local entries = queues[lane] or {}
      entries[#entries + 1] = ARGV[at + 2]
      queues[lane], fresh = entries, fresh + 1
    end
  end
  if fresh > 0 then
    local state = read_domain(states[n])
    for lane, entries in pairs(queues) do enqueue(KEYS[5], domain, state, lane, entries) end
    state.admitted = state.admitted + fresh
    changed[#changed + 1], changed[#changed + 2] = domain, write_domain(state)
    admitted = admitted + fresh
    -- What comes for a parked domain waits with it.
    if state.parked ~= '-' then
      parked = parked + fresh
    elseif state.out == '0' then
      local due = tonumber(state.next)
      if due < now then due = now end
      if due < soonest then soonest = due end
      if not states[n] then
        newcomers[#newcomers + 1] = due .. ' ' .. domain
      elseif state.next ~= '0' then
        ready[#ready + 1], ready[#ready + 2] = due, domain
      end
    end
  end
end
if admitted == 0 then return {admitted, known, over} end
call_in_parts('HSET', KEYS[3], changed)
call_in_parts('RPUSH', KEYS[6], newcomers)
local woken = ready[2] and redis.call('ZADD', KEYS[2], unpack(ready)) > 0 or newcomers[1]
woken = woken and soonest < sleep
redis.call('HINCRBY', KEYS[1], 'waiting', admitted - parked)
redis.call('HINCRBY', KEYS[1], 'admitted', admitted)
redis.call('HINCRBY', KEYS[1], 'parked', parked)
redis.call('HSET', KEYS[1], 'seen', seen, 'sleep', woken and soonest or sleep)
if woken then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
return {admitted, known, over}
