-- settle_urls: close leases, hand on their pages, and say when their domains are due again.
-- KEYS[1] meta     hash    epoch; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- KEYS[6] pages    list    of page envelopes
-- KEYS[7] counters hash    of the page queue
-- ARGV[1] epoch  ARGV[2] now (ms; 0: the server's clock)
-- ARGV[3..] per lease: token, outcome, reason, wait (ms from now), delay (ms), entry to try again, page;
--           the outcome 'paced' closes nothing and only notes the delay of the lease's domain
-- returns {ms until the next domain is due (-1: none waits), settled}; a lease settled before counts for nothing
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is over, now ' .. tostring(epoch)) end
local now, time = tonumber(ARGV[2]), redis.call('TIME')
if now == 0 then now = time[1] * 1000 + math.floor(time[2] / 1000) end
local tokens, names, states, counts, pages, settled, bytes = {}, {}, {}, {}, {}, 0, 0
-- A list in parts that a command can take as arguments.
local function parts(list)
  return function(_, from) if from + 2000 <= #list then return from + 2000, math.min(from + 3999, #list) end end, nil, -1999
end
local function count(name, amount) counts[name] = (counts[name] or 0) + amount end
for i = 3, #ARGV, 7 do
  tokens[#tokens + 1] = ARGV[i]
  names[#names + 1] = string.match(ARGV[i], '^%d+ %d (%S+) ')
end
local held, kept = {}, {}
for from, to in parts(tokens) do
  local scores = redis.call('ZMSCORE', KEYS[4], unpack(tokens, from, to))
  local found = redis.call('HMGET', KEYS[3], unpack(names, from, to))
  for n = from, to do held[n], kept[n] = scores[n - from + 1], found[n - from + 1] end
end
for n, token in ipairs(tokens) do
  local i, domain = 7 * n - 4, names[n]
  local outcome, reason = ARGV[i + 1], ARGV[i + 2]
  if held[n] and held[token] == nil then
    local state = states[domain] or {string.match(kept[n], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')}
    states[domain] = state
    state[1] = math.max(tonumber(state[1]), now + ARGV[i + 3])
    if outcome ~= 'paced' then held[token], state[2] = false, state[2] - 1 end
    if outcome == 'done' then state[3] = 0 elseif outcome == 'failed' or outcome == 'retry' then state[3] = state[3] + 1 end
    if outcome == 'done' or outcome == 'failed' then state[5] = state[5] + 1 end
    if outcome ~= 'returned' and outcome ~= 'skipped' then state[6] = ARGV[i + 4] end
    local lane, entry = string.match(token, '^%d+ (%d) %S+ (.*)$')
    if outcome == 'retry' then redis.call('RPUSH', KEYS[5] .. lane .. ':' .. domain, ARGV[i + 5])
    elseif outcome == 'returned' then redis.call('LPUSH', KEYS[5] .. lane .. ':' .. domain, entry) end
    if outcome == 'retry' or outcome == 'returned' then count('waiting', 1) end
    count(outcome, 1)
    if reason ~= '' then count('reason:' .. reason, 1) end
    if ARGV[i + 6] ~= '' then pages[#pages + 1], bytes = ARGV[i + 6], bytes + #ARGV[i + 6] end
    settled = settled + 1
  end
end
local over, changed, ready = {}, {}, {}
for n, token in ipairs(tokens) do if held[token] == false then over[#over + 1] = token end end
for domain, state in pairs(states) do
  changed[#changed + 1], changed[#changed + 2] = domain, table.concat(state, ' ')
  local queue = KEYS[5]
  if tonumber(state[2]) == 0 and redis.call('EXISTS', queue .. '0:' .. domain, queue .. '1:' .. domain, queue .. '2:' .. domain) > 0 then
    ready[#ready + 1], ready[#ready + 2] = state[1], domain
  end
end
for from, to in parts(over) do redis.call('ZREM', KEYS[4], unpack(over, from, to)) end
for from, to in parts(changed) do redis.call('HSET', KEYS[3], unpack(changed, from, to)) end
for from, to in parts(ready) do redis.call('ZADD', KEYS[2], unpack(ready, from, to)) end
for from, to in parts(pages) do redis.call('RPUSH', KEYS[6], unpack(pages, from, to)) end
if #pages > 0 then count('pages', #pages) end
for name, amount in pairs(counts) do redis.call('HINCRBY', KEYS[1], name, amount) end
if bytes > 0 then redis.call('HINCRBY', KEYS[7], 'queued_bytes', bytes) end
local soonest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
return {soonest and math.max(0, soonest - now) or -1, settled}
