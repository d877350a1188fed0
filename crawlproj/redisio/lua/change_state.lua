-- change_state: bring a run into a state it can come to from where it is, and tell its processes.
-- KEYS[1] record  hash  state, reason; since_ms, ran_ms: how long it has been running
-- ARGV[1] state  ARGV[2] reason  ARGV[3] now (ms)  ARGV[4] wake channel  ARGV[5..] the states it can come from
-- returns the state before ('' for a run that is gone); nothing is changed if that is not among ARGV[5..], or is ARGV[1]
local record = redis.call('HMGET', KEYS[1], 'state', 'since_ms', 'ran_ms')
local before, now = record[1] or '', tonumber(ARGV[3])
local may = false
for i = 5, #ARGV do may = may or ARGV[i] == before end
-- One that is in that state already keeps its reason: why it stopped, it stopped.
if not may or before == ARGV[1] then return before end
if before == 'running' then
  redis.call('HSET', KEYS[1], 'ran_ms', (record[3] or 0) + math.max(0, now - (record[2] or now)))
elseif ARGV[1] == 'running' then
  redis.call('HSET', KEYS[1], 'since_ms', now)
end
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'reason', ARGV[2], ARGV[1] .. '_ms', now)
redis.call('PUBLISH', ARGV[4], 'map')
return before
