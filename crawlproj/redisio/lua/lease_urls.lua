-- lease_urls: lease to the owner a chain of URLs of each domain that is due, or soon will be, and check those
--             domains out.
-- KEYS[1] meta     hash    epoch; rested; counters; sleep
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- KEYS[6] newcomers  list  time (ms), domain: of those never leased
-- KEYS[7..] others  none, or the hash `fetching`, then meta and domains of each partition of another run that
--            may have domains of this one
-- ARGV[1] epoch  ARGV[2] now (ms)  ARGV[3] how many  ARGV[4] longest chain
-- ARGV[5] longest time a chain may take (ms)  ARGV[6] number of the last lease the owner has received
-- ARGV[7] how many may be behind the first of a chain, in all chains
-- ARGV[8] how soon a domain that is not due yet must be (ms)
-- ARGV[9] the version of `fetching` that KEYS[7..] are of
-- returns {ms until the next domain is due (-1: none waits; -2: other runs fetch now, nothing was leased),
--          then per lease: token, fails, delay, ms until its domain is due, pages its domain gave}
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'number', 'rested')
if meta[1] ~= ARGV[1] then return fenced(ARGV[1], meta[1]) end
local others = {unpack(KEYS, 7)}
if others[1] and redis.call('HGET', others[1], ':version') ~= ARGV[9] then return {-2} end
write_when_full(KEYS[1])
local now, room = tonumber(ARGV[2]), tonumber(ARGV[3])
if now < tonumber(meta[3] or 0) then return {meta[3] - now} end
local number, behind, reply = tonumber(meta[2] or 0), tonumber(ARGV[7]), {0}
local added, gone, changed, later = {}, {}, {}, {}
local function lend(token, state, wait)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = token, state.fails, state.delay, wait
  reply[n + 5], room = state.fetched, room - 1
end
if number > tonumber(ARGV[6]) then
  -- The answer to an earlier call was lost: return those leases again.
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[6], '+inf')) do
    local state = read_domain(redis.call('HGET', KEYS[3], (select(2, read_lease(token)))))
    lend(token, state, math.max(0, state.next - now))
  end
end
-- Ms until no other run requests these domains or lets them rest, for those that another run knows.
local function rests_elsewhere(names)
  local rests = {}
  for i = 2, #others, 2 do
    local theirs = time_beside(unpack(redis.call('HMGET', others[i], 'clock', 'wall', 'until')))
    for n, text in ipairs(redis.call('HMGET', others[i + 1], unpack(names))) do
      if text then
        local state = read_domain(text)
        -- When a request ends is not known. Parked: whether the site is in trouble we find out ourselves.
        rests[names[n]] = math.max(rests[names[n]] or 0, state.out == '0' and 0 or 500,
          state.parked == '-' and state.next - theirs or 0)
      end
    end
  end
  return rests
end
local function lend_domain(domain, state, wait, most)
  local want = math.min(most, room, 1 + behind)
  -- Its delay is known only after the first fetch; until then, and while it fails, one at a time.
  if state.fetched == '0' or state.fails ~= '0' then
    want = 1
  elseif state.delay ~= '0' then
    want = math.max(1, math.min(want, math.floor(ARGV[5] / state.delay)))
  end
  local taken = dequeue(KEYS[5], domain, state, want)
  for at = 1, #taken, 2 do
    number = number + 1
    added[#added + 1], added[#added + 2] = number,
      number .. ' ' .. taken[at] .. ' ' .. domain .. ' ' .. taken[at + 1]
    lend(added[#added], state, wait)
  end
  behind = behind - math.max(0, #taken / 2 - 1)
  state.out = state.out + #taken / 2
  changed[#changed + 1], changed[#changed + 2] = domain, write_domain(state)
end
-- The next domains, from where one waits longest: newcomers, or those in `ready`.
local met, newcomer = 0, true
local function next_domains(most)
  newcomer = redis.call('LINDEX', KEYS[6], met)
  local first = newcomer and
    redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now + ARGV[8], 'WITHSCORES', 'LIMIT', #gone, 1)[2]
  if not newcomer or first and tonumber(first) < tonumber(string.match(newcomer, '^%d+')) then
    return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now + ARGV[8], 'LIMIT', #gone, most)
  end
  local names = redis.call('LRANGE', KEYS[6], met, met + most - 1)
  for n, text in ipairs(names) do names[n] = string.match(text, ' (.*)') end
  return names, true
end
while room > 0 do
  local due, are_new = next_domains(math.min(room, 1000))
  if #due == 0 then break end
  local states = redis.call('HMGET', KEYS[3], unpack(due))
  local elsewhere = others[2] and rests_elsewhere(due) or {}
  for n, domain in ipairs(due) do
    local state = read_domain(states[n])
    local wait, rest = math.max(0, state.next - now), elsewhere[domain]
    if are_new then met = met + 1 else gone[#gone + 1] = domain end
    if are_new and not is_newcomer(state) then
      -- Dropped: it is in `ready`, leased or parked.
    elseif rest and math.max(rest, wait) > 0 then
      later[#later + 1], later[#later + 2] = now + math.max(rest, wait), domain
    else
      -- One at a time, so that the other run has its turn.
      lend_domain(domain, state, wait, rest and 1 or tonumber(ARGV[4]))
    end
    if room <= 0 then break end
  end
end
call_in_parts('ZADD', KEYS[4], added)
call_in_parts('ZREM', KEYS[2], gone)
if met > 0 then redis.call('LTRIM', KEYS[6], met, -1) end
call_in_parts('ZADD', KEYS[2], later)
call_in_parts('HSET', KEYS[3], changed)
if added[1] then redis.call('HINCRBY', KEYS[1], 'waiting', 0 - #added / 2) end
local soonest
reply[1], soonest = next_due(KEYS[2], now, newcomer and KEYS[6])
redis.call('HSET', KEYS[1], 'number', number, 'sleep', soonest or '1e15')
return reply
