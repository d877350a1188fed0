-- settle_urls: close leases, hand on their pages, and say when their domains are due again.
-- KEYS[1] meta     hash    epoch; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay bytes parked
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- KEYS[6] trapped  zset    reason lane domain entry, scored by the time (ms)
-- KEYS[7] pages    list    of page envelopes
-- KEYS[8] counters hash    of the page queue
-- ARGV[1] epoch  ARGV[2] now (ms; 0: the server's clock)  ARGV[3] bytes a domain may give (0: any)  ARGV[4] trapped URLs kept
-- ARGV[5..] per lease: token, outcome, reason, wait (ms from now), delay (ms), failures in a row, bytes fetched,
--           entry to try again, page;
--           the outcome 'paced' closes nothing and only notes the delay of the lease's domain
-- returns {ms until the next domain is due (-1: none waits), settled, then the domains that gave all their bytes};
--         a lease settled before counts for nothing
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is over, now ' .. tostring(epoch)) end
local now, time, budget = tonumber(ARGV[2]), redis.call('TIME'), tonumber(ARGV[3])
if now == 0 then now = time[1] * 1000 + math.floor(time[2] / 1000) end
local tokens, names, states, counts, pages, settled, bytes, held, kept = {}, {}, {}, {}, {}, 0, 0, {}, {}
-- A list in parts that a command can take as arguments.
local function parts(list)
  return function(_, from) if from + 2000 <= #list then return from + 2000, math.min(from + 3999, #list) end end, nil, -1999
end
local function count(name) counts[name] = (counts[name] or 0) + 1 end
for i = 5, #ARGV, 9 do
  tokens[#tokens + 1] = ARGV[i]
  names[#names + 1] = string.match(ARGV[i], '^%d+ %d (%S+) ')
end
for from, to in parts(tokens) do
  local scores = redis.call('ZMSCORE', KEYS[4], unpack(tokens, from, to))
  local found = redis.call('HMGET', KEYS[3], unpack(names, from, to))
  for n = from, to do held[n], kept[n] = scores[n - from + 1], found[n - from + 1] end
end
for n, token in ipairs(tokens) do
  local i, domain = 9 * n - 4, names[n]
  local outcome, reason = ARGV[i + 1], ARGV[i + 2]
  if held[n] and held[token] == nil then
    local state = states[domain] or {string.match(kept[n], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')}
    states[domain] = state
    state[1] = math.max(tonumber(state[1]), now + ARGV[i + 3])
    if outcome ~= 'paced' then held[token], state[2], state[3] = false, state[2] - 1, ARGV[i + 5] end
    if outcome == 'done' or outcome == 'failed' then state[5] = state[5] + 1 end
    if outcome ~= 'returned' and outcome ~= 'skipped' and outcome ~= 'trapped' then state[6] = ARGV[i + 4] end
    state[7], counts.bytes = string.format('%.0f', state[7] + ARGV[i + 6]), (counts.bytes or 0) + ARGV[i + 6]
    local lane, entry = string.match(token, '^%d+ (%d) %S+ (.*)$')
    -- What is returned, or got a cookie, which may not live as long as the others take, goes first.
    if outcome == 'retry' and reason ~= 'retry_cookie' then redis.call('RPUSH', KEYS[5] .. lane .. ':' .. domain, ARGV[i + 7])
    elseif outcome == 'retry' or outcome == 'returned' then redis.call('LPUSH', KEYS[5] .. lane .. ':' .. domain, outcome == 'retry' and ARGV[i + 7] or entry)
    elseif outcome == 'trapped' then redis.call('ZADD', KEYS[6], now, table.concat({reason, lane, domain, entry}, ' ')) end
    if outcome == 'retry' or outcome == 'returned' then count(state[8] == '-' and 'waiting' or 'parked') end
    count(outcome)
    if reason ~= '' then count('reason:' .. reason) end
    if ARGV[i + 8] ~= '' then pages[#pages + 1], bytes = ARGV[i + 8], bytes + #ARGV[i + 8] end
    settled = settled + 1
  end
end
local over, changed, ready, reply = {}, {}, {}, {0, settled}
for _, token in ipairs(tokens) do if held[token] == false then over[#over + 1] = token end end
for domain, state in pairs(states) do
  changed[#changed + 1], changed[#changed + 2] = domain, table.concat(state, ' ')
  local function waits() return redis.call('EXISTS', KEYS[5] .. '0:' .. domain, KEYS[5] .. '1:' .. domain, KEYS[5] .. '2:' .. domain) > 0 end
  if state[2] == 0 and state[8] == '-' and waits() then ready[#ready + 1], ready[#ready + 2] = state[1], domain end
  if budget > 0 and state[8] == '-' and tonumber(state[7]) >= budget then reply[#reply + 1] = domain end
end
if counts.trapped then redis.call('ZREMRANGEBYRANK', KEYS[6], 0, -1 - ARGV[4]) end
for from, to in parts(over) do redis.call('ZREM', KEYS[4], unpack(over, from, to)) end
for from, to in parts(changed) do redis.call('HSET', KEYS[3], unpack(changed, from, to)) end
for from, to in parts(ready) do redis.call('ZADD', KEYS[2], unpack(ready, from, to)) end
for from, to in parts(pages) do redis.call('RPUSH', KEYS[7], unpack(pages, from, to)) end
counts.pages = #pages > 0 and #pages or nil
for name, amount in pairs(counts) do redis.call('HINCRBY', KEYS[1], name, amount) end
if bytes > 0 then redis.call('HINCRBY', KEYS[8], 'queued_bytes', bytes) end
local soonest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
reply[1] = soonest and math.max(0, soonest - now) or -1
return reply
