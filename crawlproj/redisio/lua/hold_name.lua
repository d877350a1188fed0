-- hold_name: claim or renew a name (a shard number, the leader) that one process holds at a time.
-- KEYS[1] name  string  instance, a space, and what is known about it as JSON: `renewed_ms`, and ARGV[2]
-- ARGV[1] instance  ARGV[2] a JSON object, not empty  ARGV[3] how long it is held without renewal (ms)
-- returns '' when held, else what is known about the holder, its instance first
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^%S+') ~= ARGV[1] then
  -- Held for longer than anybody may: the clock of Redis was set back, and the holder may be dead.
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
  return held
end
write_when_full(KEYS[1])
local known = '{"renewed_ms":' .. clock(0) .. ',' .. string.sub(ARGV[2], 2)
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. known, 'PX', ARGV[3])
return ''
