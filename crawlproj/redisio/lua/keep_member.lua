-- keep_member: join a run as a member, or stay one; each member learns which shard numbers are its own.
-- KEYS[1] record   hash  shards, asked (by a person; no field: as many as the members bring), partitions
-- KEYS[2] members  hash  instance -> `at joined shards JSON`: last heard of, joined (ms), and what it brings
-- KEYS[3] numbers  hash  shard number -> instance of the member it is given to; '': given up, and free
-- ARGV[1] instance  ARGV[2] how many shards it brings  ARGV[3] what is known about it (JSON)
-- ARGV[4] how long a member may be silent (ms)  ARGV[5] 1: it has just come  ARGV[6] wake channel
-- ARGV[7] members known to be dead, ARGV[8] the numbers its processes hold, ARGV[9] those that processes
--         elsewhere hold: each between spaces
-- returns {shards of the run, members, numbers of this one...}; {} for a deleted run
local record = redis.call('HMGET', KEYS[1], 'shards', 'asked', 'partitions')
if not record[1] then return {} end
local now, me, brings = clock(0), ARGV[1], tonumber(ARGV[2])
local shards, asked = tonumber(record[1]), tonumber(record[2] or 0)
local function has(list, name) return string.find(list, ' ' .. name .. ' ', 1, true) end
local function pairs_of(key, use)
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do use(flat[i], flat[i + 1]) end
end

write_when_full(KEYS[1])
local self = {name = me, shards = brings}
local members, alive, owners, joined_last = {self}, {[me] = true}, {}, now
pairs_of(KEYS[2], function(name, value)
  local at, joined, theirs = string.match(value, '^(%S+) (%S+) (%S+) ')
  if name == me then
    self.joined = tonumber(joined)
  elseif now - at > tonumber(ARGV[4]) or has(ARGV[7], name) then
    redis.call('HDEL', KEYS[2], name)
  else
    alive[name] = true
    members[#members + 1] = {name = name, joined = tonumber(joined), shards = tonumber(theirs)}
    joined_last = math.max(joined_last, joined + 1)
  end
end)
self.joined = self.joined or joined_last
redis.call('HSET', KEYS[2], me, now .. ' ' .. self.joined .. ' ' .. brings .. ' ' .. ARGV[3])
pairs_of(KEYS[3], function(number, name) owners[tonumber(number)] = name end)

-- How many there are: of a run that nobody works on, as many as the first brings; later never fewer than all
-- bring, with the shards that somebody started by hand. Those of a member that died stay, for who comes next.
if ARGV[5] == '1' and #members == 1 and ARGV[9] == ' ' then
  shards, asked = brings, 0
  redis.call('HDEL', KEYS[1], 'asked')
end
local all, by_hand = 0, 0
for _, member in ipairs(members) do all = all + member.shards end
for number in string.gmatch(ARGV[9], '%d+') do
  if not owners[tonumber(number)] then by_hand = by_hand + 1 end
end
if asked == 0 then shards = math.max(shards, math.min(tonumber(record[3]), all + by_hand)) end
if shards ~= tonumber(record[1]) then
  redis.call('HSET', KEYS[1], 'shards', shards)
  redis.call('PUBLISH', ARGV[6], 'map')
end

-- How many are ours: by what each brings. Of a run that has lost most members no more than twice that.
table.sort(members, function(a, b) return a.joined < b.joined end)
local before, share, seats = 0, 0, math.max(0, shards - by_hand)
for _, member in ipairs(members) do
  local first = math.floor(seats * before / all)
  before = before + member.shards
  if member.name == me then share = math.floor(seats * before / all) - first end
end
share = math.min(share, math.max(2 * brings, math.ceil(asked * brings / all)))

-- Which: those we have, then free ones, the lowest first. One too many stays ours until its process has left.
local ours, free = {}, {}
for number = 0, math.max(shards, tonumber(record[1])) - 1 do
  local owner, is_held, is_elsewhere = owners[number], has(ARGV[8], number), has(ARGV[9], number)
  local is_gone = owner and not alive[owner]
  if number >= shards or (owner == me or is_gone) and is_elsewhere and not is_held then
    if number >= shards or owner == me then redis.call('HDEL', KEYS[3], number) end
  elseif owner == me or is_held and (not owner or is_gone) then
    ours[#ours + 1] = number
  elseif (not owner or is_gone) and not is_elsewhere then
    free[#free + 1] = number
  end
end
local answer = {shards, #members}
for i, number in ipairs(ours) do
  if i <= share then
    answer[#answer + 1] = number
    redis.call('HSET', KEYS[3], number, me)
  elseif not has(ARGV[8], number) then
    -- Not deleted: if it was killed it is held for a while, and is no shard that somebody started by hand.
    redis.call('HSET', KEYS[3], number, '')
  end
end
for i = 1, math.min(share - #ours, #free) do
  answer[#answer + 1] = free[i]
  redis.call('HSET', KEYS[3], free[i], me)
end
return answer
