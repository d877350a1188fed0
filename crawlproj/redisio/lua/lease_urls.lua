-- lease_urls: lease to the owner a chain of URLs of each domain that is due, or soon will be, and check those
--             domains out.
-- KEYS[1] meta     hash    epoch; counters; sleep
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> state
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- ARGV[1] epoch  ARGV[2] now (ms; 0: the server's clock)  ARGV[3] how many  ARGV[4] longest chain
-- ARGV[5] longest time a chain may take (ms)  ARGV[6] number of the last lease the owner has received
-- ARGV[7] how many may be behind the first of a chain, in all chains
-- ARGV[8] how soon a domain that is not due yet must be (ms)
-- returns {ms until the next domain is due (-1: none waits),
--          then per lease: token, fails, delay, ms until its domain is due}
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'number')
if meta[1] ~= ARGV[1] then return fenced(ARGV[1], meta[1]) end
write_when_full(KEYS[1])
local now, room, chain, chain_ms = clock(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local first, behind = tonumber(meta[2] or 0), tonumber(ARGV[7])
local number, reply, size = first, {0}, 1
local added, gone, changed = {}, {}, {}
local function lend(token, state, wait)
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = token, state.fails, state.delay, wait
  size, room = size + 4, room - 1
end
if number > tonumber(ARGV[6]) then
  -- The answer to an earlier call was lost: return those leases again.
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[6], '+inf')) do
    local _, domain = read_lease(token)
    local state = read_domain(redis.call('HGET', KEYS[3], domain))
    lend(token, state, math.max(0, state.next - now))
  end
end
while room > 0 do
  local most = math.min(room, 1000)
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now + ARGV[8], 'LIMIT', #gone, most)
  if #due == 0 then break end
  local states = redis.call('HMGET', KEYS[3], unpack(due))
  for n, domain in ipairs(due) do
    local state = read_domain(states[n])
    local wait = math.max(0, state.next - now)
    local want = math.min(chain, room, 1 + behind)
    -- Its delay is known only after the first fetch; until then, and while it fails, one at a time.
    if state.fetched == '0' or state.fails ~= '0' then
      want = 1
    elseif state.delay ~= '0' then
      want = math.max(1, math.min(want, math.floor(chain_ms / state.delay)))
    end
    local left = want
    for _, lane in ipairs(lanes) do
      local entries = {}
      if left > 1 then
        entries = redis.call('LPOP', KEYS[5] .. lane .. ':' .. domain, left) or entries
      else
        -- One alone costs a third of a list of one.
        entries[1] = redis.call('LPOP', KEYS[5] .. lane .. ':' .. domain) or nil
      end
      for at = 1, #entries do
        number = number + 1
        local token = number .. ' ' .. lane .. ' ' .. domain .. ' ' .. entries[at]
        added[#added + 1], added[#added + 2] = number, token
        lend(token, state, wait)
      end
      left = left - #entries
      if left == 0 then break end
    end
    local taken = want - left
    if taken > 1 then behind = behind - taken + 1 end
    state.out = state.out + taken
    gone[#gone + 1] = domain
    changed[#changed + 1], changed[#changed + 2] = domain, write_domain(state)
    if room <= 0 then break end
  end
end
call_in_parts('ZADD', KEYS[4], added)
call_in_parts('ZREM', KEYS[2], gone)
call_in_parts('HSET', KEYS[3], changed)
if number > first then redis.call('HINCRBY', KEYS[1], 'waiting', first - number) end
local soonest
reply[1], soonest = next_due(KEYS[2], now)
redis.call('HSET', KEYS[1], 'number', number, 'sleep', soonest or '1e15')
return reply
