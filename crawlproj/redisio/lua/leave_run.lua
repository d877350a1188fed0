-- leave_run: take a member out of a run, with what it brought.
-- KEYS[1] record   hash  shards, asked
-- KEYS[2] members  hash  instance -> `at joined shards JSON`
-- KEYS[3] numbers  hash  shard number -> instance of the member it is given to; '': given up, and free
-- ARGV[1] instance  ARGV[2] 1: the run continues without it  ARGV[3] wake channel
-- returns how many members are left
redis.call('HDEL', KEYS[2], ARGV[1])
local owners, flat = {}, redis.call('HGETALL', KEYS[3])
for i = 1, #flat, 2 do
  local number, owner = flat[i], flat[i + 1]
  if owner == ARGV[1] or owner == '' then redis.call('HDEL', KEYS[3], number) else owners[number] = true end
end
local left = redis.call('HVALS', KEYS[2])
local record = redis.call('HMGET', KEYS[1], 'shards', 'asked')
if ARGV[2] ~= '1' or #left == 0 or record[2] or not record[1] then return #left end
-- The highest numbers go with it, as far as the others bring none for them; those in between are for others.
local brought, shards = 0, tonumber(record[1])
for _, value in ipairs(left) do brought = brought + string.match(value, '^%S+ %S+ (%S+) ') end
while shards > math.max(1, brought) and not owners[tostring(shards - 1)] do shards = shards - 1 end
redis.call('HSET', KEYS[1], 'shards', shards)
redis.call('PUBLISH', ARGV[3], 'map')
return #left
