-- admit_urls: take in candidates never seen before, and make their domains ready.
-- KEYS[1] meta     hash    counters; sleep
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay
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
  local from, to = KEYS[4] .. (buckets - 1 - span / 2), KEYS[4] .. (buckets - 1)
  -- One by one: a bucket somebody filled on purpose may hold more than a command takes arguments.
  for _, mark in ipairs(redis.call('SMEMBERS', from)) do
    if bucket_of(mark) == buckets - 1 then redis.call('SMOVE', from, to, mark) end
  end
end

local admitted, known, over, wake, i = 0, 0, 0, false, 5
while i <= #ARGV do
  local domain, last = ARGV[i], i + 1 + 3 * ARGV[i + 1]
  local state = redis.call('HGET', KEYS[3], domain) or '0 0 0 0 0 0'
  local due, out, fails, before, rest = string.match(state, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  local total, lanes = tonumber(before), {}
  for at = i + 2, last, 3 do
    local mark, lane = ARGV[at], ARGV[at + 1]
    if budget > 0 and total >= budget then
      over = over + 1
    elseif mark ~= '' and redis.call('SADD', KEYS[4] .. bucket_of(mark), mark) == 0 then
      known = known + 1
    else
      if mark ~= '' then seen = seen + 1 end
      if seen >= buckets * 200 then split() end
      lanes[lane] = lanes[lane] or {}
      table.insert(lanes[lane], ARGV[at + 2])
      total = total + 1
    end
  end
  for lane, entries in pairs(lanes) do
    redis.call('RPUSH', KEYS[5] .. lane .. ':' .. domain, unpack(entries))
  end
  if total > tonumber(before) then
    redis.call('HSET', KEYS[3], domain, table.concat({due, out, fails, total, rest}, ' '))
    due = math.max(now, tonumber(due))
    if out == '0' and redis.call('ZADD', KEYS[2], 'NX', due, domain) == 1 and due < sleep then wake, sleep = true, due end
  end
  admitted, i = admitted + total - before, last + 1
end
if admitted == 0 then return {admitted, known, over} end
redis.call('HINCRBY', KEYS[1], 'waiting', admitted)
redis.call('HINCRBY', KEYS[1], 'admitted', admitted)
redis.call('HSET', KEYS[1], 'seen', seen, 'sleep', sleep)
if wake then redis.call('PUBLISH', ARGV[3], ARGV[4]) end
return {admitted, known, over}
