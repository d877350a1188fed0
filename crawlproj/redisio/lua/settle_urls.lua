-- settle_urls: close leases, queue their pages, and set when their domains are due again.
-- KEYS[1] meta     hash    epoch; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- KEYS[6] newcomers  list  time (ms), domain: of those never leased
-- KEYS[7] trapped  zset    reason lane domain entry, scored by the time (ms)
-- KEYS[8] pages    list    of page envelopes
-- KEYS[9] counters hash    of the page queue
-- ARGV[1] epoch  ARGV[2] now (ms)  ARGV[3] bytes a domain may give (0: any)
-- ARGV[4] trapped URLs kept
-- ARGV[5..] per lease: token, outcome, reason, wait (ms from now), delay (ms), failures in a row,
--           bytes fetched, entry to try again, page;
--           the outcome 'paced' closes nothing and only notes the delay of the lease's domain
-- returns {ms until the next domain is due (-1: none waits), settled, then the domains that gave all their
--          bytes}; a lease settled before counts for nothing
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return fenced(ARGV[1], epoch) end
write_when_full(KEYS[1])
local now, budget = tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, lane_of, names, entries = {}, {}, {}, {}
for i = 5, #ARGV, 9 do
  local n = #tokens + 1
  tokens[n] = ARGV[i]
  lane_of[n], names[n], entries[n] = read_lease(ARGV[i])
end
local held, known = call_in_parts('ZMSCORE', KEYS[4], tokens), call_in_parts('HMGET', KEYS[3], names)
local states, closed, over, counts, pages = {}, {}, {}, {}, {}
local settled, received, queued = 0, 0, 0
local function has_waiting(domain, waiting)
  local q = KEYS[5]
  if waiting ~= listed then return waiting ~= '' end
  return redis.call('EXISTS', q .. '0:' .. domain, q .. '1:' .. domain, q .. '2:' .. domain) > 0
end
local function count(name) counts[name] = (counts[name] or 0) + 1 end
for n, token in ipairs(tokens) do
  if held[n] and not closed[token] then
    local i, domain = 9 * n - 4, names[n]
    local outcome, reason, page = ARGV[i + 1], ARGV[i + 2], ARGV[i + 8]
    local state = states[domain] or read_domain(known[n])
    states[domain] = state
    state.next = math.max(tonumber(state.next), now + ARGV[i + 3])
    if outcome ~= 'paced' then
      closed[token], over[#over + 1] = true, token
      state.out, state.fails = state.out - 1, ARGV[i + 5]
    end
    if outcome == 'done' or outcome == 'failed' then state.fetched = state.fetched + 1 end
    if outcome ~= 'returned' and outcome ~= 'skipped' and outcome ~= 'trapped' then
      state.delay = ARGV[i + 4]
    end
    state.bytes = string.format('%.0f', state.bytes + ARGV[i + 6])
    received = received + ARGV[i + 6]
    if outcome == 'trapped' then
      redis.call('ZADD', KEYS[7], now, table.concat({reason, lane_of[n], domain, entries[n]}, ' '))
    elseif outcome == 'retry' or outcome == 'returned' then
      local entry = outcome == 'retry' and ARGV[i + 7] or entries[n]
      -- First in its lane: what is returned, or got a cookie that may expire while it waits.
      local is_first = outcome == 'returned' or reason == 'retry_cookie'
      enqueue(KEYS[5], domain, state, lane_of[n], {entry}, is_first)
      count(state.parked == '-' and 'waiting' or 'parked')
    end
    count(outcome)
    if reason ~= '' then count('reason:' .. reason) end
    if page ~= '' then
      pages[#pages + 1] = page
      queued = queued + #page
    end
    settled = settled + 1
  end
end
local changed, ready, reply = {}, {}, {0, settled}
for domain, state in pairs(states) do
  changed[#changed + 1], changed[#changed + 2] = domain, write_domain(state)
  if state.parked == '-' then
    if state.out == 0 and has_waiting(domain, state.waiting) then
      ready[#ready + 1], ready[#ready + 2] = state.next, domain
    end
    if budget > 0 and tonumber(state.bytes) >= budget then reply[#reply + 1] = domain end
  end
end
if counts.trapped then redis.call('ZREMRANGEBYRANK', KEYS[7], 0, -1 - ARGV[4]) end
call_in_parts('ZREM', KEYS[4], over)
call_in_parts('HSET', KEYS[3], changed)
call_in_parts('ZADD', KEYS[2], ready)
call_in_parts('RPUSH', KEYS[8], pages)
if settled > 0 then counts.bytes = received end
if queued > 0 then counts.pages = #pages end
for name, amount in pairs(counts) do redis.call('HINCRBY', KEYS[1], name, amount) end
if queued > 0 then redis.call('HINCRBY', KEYS[9], 'queued_bytes', queued) end
reply[1] = next_due(KEYS[2], now, KEYS[6])
return reply
