-- lease_urls: lend the owner URLs of domains that are due, or soon will be, a chain of each, and check those domains out.
-- KEYS[1] meta     hash    epoch; counters; sleep
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay bytes parked
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] epoch  ARGV[2] now (ms; 0: the server's clock)  ARGV[3] how many  ARGV[4] longest chain
-- ARGV[5] longest time a chain may take (ms)  ARGV[6] number of the last lease the owner has received
-- ARGV[7] how many may be behind the first of a chain, in all chains
-- ARGV[8] how soon a domain that is not due yet must be (ms)
-- returns {ms until the next domain is due (-1: none waits), then per lease: token, fails, delay, ms until its domain is due}
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'number')
if meta[1] ~= ARGV[1] then return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is over, now ' .. tostring(meta[1])) end
local now, room, chain, chain_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local number, reply, size, added, gone, changed = tonumber(meta[2] or 0), {0}, 1, {}, {}, {}
local first, behind = number, tonumber(ARGV[7])
local function tell(token, due, fails, delay)
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = token, fails, delay, math.max(0, due - now)
  size, room = size + 4, room - 1
end
-- A list in parts that a command can take as arguments.
local function parts(list)
  return function(_, from) if from + 2000 <= #list then return from + 2000, math.min(from + 3999, #list) end end, nil, -1999
end
if number > tonumber(ARGV[6]) then
  -- The answer to an earlier call was lost on its way: those leases are told again.
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[6], '+inf')) do
    local state = redis.call('HGET', KEYS[3], string.match(token, '^%d+ %d (%S+) '))
    tell(token, string.match(state, '^(%d+) %d+ (%d+) %d+ %d+ (%d+) '))
  end
end
while room > 0 do
  local due_domains = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now + ARGV[8], 'LIMIT', #gone, math.min(room, 1000))
  if #due_domains == 0 then break end
  local states = redis.call('HMGET', KEYS[3], unpack(due_domains))
  for n, domain in ipairs(due_domains) do
    local due, out, fails, total, fetched, delay, rest = string.match(states[n], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
    local want = math.min(chain, room, 1 + behind)
    -- Its delay is known only after the first fetch; until then, and while it fails, one at a time.
    if fetched == '0' or fails ~= '0' then want = 1
    elseif delay ~= '0' then want = math.max(1, math.min(want, math.floor(chain_ms / delay))) end
    local left = want
    for lane = 0, 2 do
      -- One alone costs a third of a list of one.
      local entries = left > 1 and redis.call('LPOP', KEYS[5] .. lane .. ':' .. domain, left) or {}
      if left == 1 then entries[1] = redis.call('LPOP', KEYS[5] .. lane .. ':' .. domain) or nil end
      for at = 1, #entries do
        number = number + 1
        local token = number .. ' ' .. lane .. ' ' .. domain .. ' ' .. entries[at]
        added[#added + 1], added[#added + 2] = number, token
        tell(token, due, fails, delay)
      end
      left = left - #entries
    end
    gone[#gone + 1], behind = domain, math.min(behind, behind + 1 - want + left)
    table.insert(changed, domain)
    table.insert(changed, table.concat({due, out + want - left, fails, total, fetched, delay}, ' ') .. rest)
    if room <= 0 then break end
  end
end
for from, to in parts(added) do redis.call('ZADD', KEYS[4], unpack(added, from, to)) end
for from, to in parts(gone) do redis.call('ZREM', KEYS[2], unpack(gone, from, to)) end
for from, to in parts(changed) do redis.call('HSET', KEYS[3], unpack(changed, from, to)) end
if number > first then redis.call('HINCRBY', KEYS[1], 'waiting', first - number) end
local soonest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
redis.call('HSET', KEYS[1], 'number', number, 'sleep', soonest or '1e15')
reply[1] = soonest and math.max(0, soonest - now) or -1
return reply
