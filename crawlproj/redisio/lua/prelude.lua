-- prelude: the formats that steps share, and what each would repeat. The loader joins it to the first line of
-- a step: an error on line 1 is in here, and any other line number is that of the step's own file.
-- No KEYS, no ARGV: a step passes them in. Comments stand on lines of their own.

-- The time (ms): as given, or the server's if that is 0.
local function clock(given, round)
  local now = tonumber(given)
  if now ~= 0 then return now end
  local time = redis.call('TIME')
  return time[1] * 1000 + (round or math.floor)(time[2] / 1000)
end

-- The time of a partition (ms), to others than its owner: as the owner wrote it last, and what has passed
-- since by the slower of two clocks, the server's and the caller's: either may have been set forward.
local function partition_time(given, written, wall, mine, caller)
  if tonumber(given) ~= 0 or not written then return clock(given) end
  return written + math.max(0, math.min(clock(0) - wall, caller - mine))
end
-- The same to another run: no later than the owner must write it again; once it is released (0), nobody will.
local function time_beside(written, wall, ends)
  local now = clock(0)
  if not written then return now end
  return written + math.max(0, (tonumber(ends) == 0 and now or math.min(now, tonumber(ends))) - wall)
end

-- Let this step write although Redis is full (maxmemory): for steps that empty it, or add little.
-- Redis refuses a script's first write if that may need memory, and none after it, so that no step is done
-- by half. Removing an expiry never needs memory, so it is the first write of such a step. It changes
-- nothing: a key that expires gets its expiry again from the step itself.
local function write_when_full(key) redis.call('PERSIST', key) end

-- The answer to an owner whose epoch is over.
local function fenced(epoch, current)
  return redis.error_reply('FENCED epoch ' .. epoch .. ' is over, now ' .. tostring(current))
end

-- The state of a domain: its fields are what the key `domains` says. They stay text, as stored: Lua converts
-- them where it calculates, not where it compares. False stands for a domain that is new.
local function state_of(due, out, fails, admitted, fetched, delay, bytes, parked, waiting)
  return {
    next = due, out = out, fails = fails, admitted = admitted,
    fetched = fetched, delay = delay, bytes = bytes, parked = parked, waiting = waiting,
  }
end
local function read_domain(text)
  return state_of(string.match(text or '0 0 0 0 0 0 0 -',
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)(.*)$'))
end
local function write_domain(state)
  return state.next .. ' ' .. state.out .. ' ' .. state.fails .. ' ' .. state.admitted .. ' ' ..
    state.fetched .. ' ' .. state.delay .. ' ' .. state.bytes .. ' ' .. state.parked .. state.waiting
end

-- Whether a domain that waits was never leased, parked or made to rest: it stands in `newcomers`, not in
-- `ready`. One that ceases to be stands in both places, and is dropped from `newcomers` when it is its turn.
local function is_newcomer(state) return state.next == '0' and state.out == '0' and state.parked == '-' end

-- The lane, domain and entry of a lease, `number lane domain entry`.
local function read_lease(token)
  return string.match(token, '^%d+ (%d) (%S+) (.*)$')
end

-- The lanes of a domain's URLs, first come first; text, since a number is slow to write.
local lanes = {'0', '1', '2'}
-- The URLs of a domain that wait: few stand in its state, each on a line after its lane, in the order in
-- which they are leased. More are in lists, one a lane; then the state has an empty line. A step that calls
-- these writes the state.
local listed = '\n'
-- Append entries to a lane, or put one first.
local function enqueue(queue, domain, state, lane, entries, is_first)
  local few = state.waiting
  if few ~= listed then
    local added = '\n' .. lane .. table.concat(entries, '\n' .. lane)
    if #few + #added <= 256 then
      -- Before what is of a later lane: [3-2] is none.
      local at = string.find(few, '\n[' .. lane + (is_first and 0 or 1) .. '-2]') or #few + 1
      state.waiting = string.sub(few, 1, at - 1) .. added .. string.sub(few, at)
      return
    end
    state.waiting = listed
    for own, entry in string.gmatch(few, '\n(%d)([^\n]*)') do
      redis.call('RPUSH', queue .. own .. ':' .. domain, entry)
    end
  end
  if is_first then
    redis.call('LPUSH', queue .. lane .. ':' .. domain, unpack(entries))
  else
    redis.call('RPUSH', queue .. lane .. ':' .. domain, unpack(entries))
  end
end
-- Take up to so many of a domain, in order; returns lane and entry of each.
local function dequeue(queue, domain, state, most)
  local taken, from = {}, 1
  if state.waiting ~= listed then
    for lane, entry, after in string.gmatch(state.waiting, '\n(%d)([^\n]*)()') do
      taken[#taken + 1], taken[#taken + 2], from = lane, entry, after
      if #taken == 2 * most then break end
    end
    state.waiting = string.sub(state.waiting, from)
    return taken
  end
  for _, lane in ipairs(lanes) do
    local list, left = queue .. lane .. ':' .. domain, most - #taken / 2
    if left == 0 then break end
    -- One alone costs a third of a list of one.
    local entries = {left == 1 and redis.call('LPOP', list) or nil}
    if left > 1 then entries = redis.call('LPOP', list, left) or entries end
    for n = 1, #entries do taken[#taken + 1], taken[#taken + 2] = lane, entries[n] end
  end
  if #taken < 2 * most then state.waiting = '' end
  return taken
end
-- How many URLs of a domain wait, in all lanes.
local function count_waiting(queue, domain, state)
  local count = select(2, string.gsub(state.waiting, '\n%d', ''))
  for _, lane in ipairs(lanes) do count = count + redis.call('LLEN', queue .. lane .. ':' .. domain) end
  return count
end

-- Ms until the first domain is due (-1: there is none), and the time it is; newcomers, if given, are due now.
local function next_due(ready, now, newcomers)
  if newcomers and redis.call('EXISTS', newcomers) == 1 then return 0, now end
  local due = redis.call('ZRANGE', ready, 0, 0, 'WITHSCORES')[2]
  return due and math.max(0, due - now) or -1, due
end

-- Take a dead letter out of Redis; returns its envelope, or false if it is not there.
local function take_letter(dead, letters, ages, counters, page)
  local envelope = redis.call('HGET', letters, page)
  if not envelope then return false end
  local bytes = #envelope + redis.call('HSTRLEN', dead, page)
  redis.call('HDEL', dead, page)
  redis.call('HDEL', letters, page)
  if redis.call('ZREM', ages, page) == 1 then redis.call('HINCRBY', counters, 'dead_bytes', -bytes) end
  return envelope
end

-- Call a command with a list that may be longer than what one takes; returns the answers for all members.
local function call_in_parts(command, key, list)
  local answers = {}
  for from = 1, #list, 2000 do
    local answer = redis.call(command, key, unpack(list, from, math.min(from + 1999, #list)))
    if from == 1 then
      answers = answer
    elseif type(answer) == 'table' then
      for n = 1, #answer do answers[from + n - 1] = answer[n] end
    end
  end
  return answers
end
