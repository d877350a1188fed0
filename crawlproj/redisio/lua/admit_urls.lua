-- admit_urls: take in candidates never seen before, and make their domains ready.
-- KEYS[1] meta     hash    counters; sleep
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay bytes parked
-- KEYS[4] seen     prefix  of sets of fingerprints, by bucket
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] now (ms; 0: the server's clock)  ARGV[2] URLs a domain may have (0: any)  ARGV[3] wake channel
-- ARGV[4] wake message  ARGV[5..] per domain: domain, count, then count times: mark ('': always), lane, entry
-- returns {admitted, seen before, over the domain's budget}
local now, budget, time = tonumber(ARGV[1]), tonumber(ARGV[2]), redis.call('TIME')
if now == 0 then now = time[1] * 1000 + math.floor(time[2] / 1000) end
local meta = redis.call('HMGET', KEYS[1], 'seen', 'sleep')
local seen, sleep = tonumber(meta[1] or 0), tonumber(meta[2] or 0)

-- `seen` grows by linear hashing: one bucket for every 200 fingerprints, the next one split when due,
-- so that none comes near the 512 members beyond which Redis gives up the compact intset.
local buckets, span = math.floor(seen / 200) + 1, 1
while span < buckets do span = span * 2 end
local function bucket_of(mark)
  local i = tonumber(string.sub(mark, -9)) % span
  return i < buckets and i or i - span / 2
end
local function split()
  buckets = buckets + 1
  if span < buckets then span = span * 2 end
  local from, moved = KEYS[4] .. (buckets - 1 - span / 2), {}
  for _, mark in ipairs(redis.call('SMEMBERS', from)) do
    if bucket_of(mark) == buckets - 1 then moved[#moved + 1] = mark end
  end
  -- In parts: a bucket somebody filled on purpose may hold more than a command takes arguments.
  for at = 1, #moved, 1000 do
    redis.call('SREM', from, unpack(moved, at, math.min(at + 999, #moved)))
    redis.call('SADD', KEYS[4] .. (buckets - 1), unpack(moved, at, math.min(at + 999, #moved)))
  end
end

local names, starts, i = {}, {}, 5
while ARGV[i] do
  names[#names + 1], starts[#starts + 1], i = ARGV[i], i, i + 2 + 3 * ARGV[i + 1]
end
starts[#starts + 1] = i
local states = redis.call('HMGET', KEYS[3], unpack(names))
local admitted, parked, known, over, soonest, changed, ready = 0, 0, 0, 0, sleep, {}, {'NX'}
for n, domain in ipairs(names) do
  local due, out, fails, before, rest = string.match(states[n] or '0 0 0 0 0 0 0 -', '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  local total, lanes = tonumber(before), {}
  for at = starts[n] + 2, starts[n + 1] - 1, 3 do
    local mark, lane = ARGV[at], ARGV[at + 1]
    if budget > 0 and total >= budget then
      over = over + 1
    elseif mark ~= '' and redis.call('SADD', KEYS[4] .. bucket_of(mark), mark) == 0 then
      known = known + 1
    else
      seen, lanes[lane], total = seen + (mark == '' and 0 or 1), lanes[lane] or {}, total + 1
      if seen >= buckets * 200 then split() end
      table.insert(lanes[lane], ARGV[at + 2])
    end
  end
  for lane, entries in pairs(lanes) do redis.call('RPUSH', KEYS[5] .. lane .. ':' .. domain, unpack(entries)) end
  if total > tonumber(before) then
    changed[#changed + 1], changed[#changed + 2] = domain, table.concat({due, out, fails, total, rest}, ' ')
    due, admitted = math.max(now, tonumber(due)), admitted + total - before
    -- What comes for a parked domain waits with it.
    if string.sub(rest, -2) ~= ' -' then parked = parked + total - before
    elseif out == '0' then ready[#ready + 1], ready[#ready + 2], soonest = due, domain, math.min(soonest, due) end
  end
end
if admitted == 0 then return {admitted, known, over} end
redis.call('HSET', KEYS[3], unpack(changed))
local woken = ready[2] and redis.call('ZADD', KEYS[2], unpack(ready)) > 0 and soonest < sleep
for name, size in pairs({waiting = admitted - parked, admitted = admitted, parked = parked}) do redis.call('HINCRBY', KEYS[1], name, size) end
redis.call('HSET', KEYS[1], 'seen', seen, 'sleep', woken and soonest or sleep)
if woken then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
return {admitted, known, over}
