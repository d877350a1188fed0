-- change_state: set the state of a run, if it can be reached from the current one, and notify its processes.
-- KEYS[1] record  hash  state, reason; additions; since_ms, ran_ms: how long it has been running
-- ARGV[1] state  ARGV[2] reason  ARGV[3] now (ms; 0: the server's clock)  ARGV[4] wake channel
-- ARGV[5] how often work was added when the caller looked ('': whatever)
-- ARGV[6..] the states it can be reached from
-- returns the state before ('' for a deleted run);
--         nothing is changed if that is not among ARGV[6..], or is ARGV[1];
--         'added', with nothing changed, if work was added since ARGV[5]
local record = redis.call('HMGET', KEYS[1], 'state', 'since_ms', 'ran_ms', 'additions')
local before, now = record[1] or '', clock(ARGV[3])
local may = false
for i = 6, #ARGV do may = may or ARGV[i] == before end
-- One that is in that state already keeps the reason it has.
if not may or before == ARGV[1] then return before end
if ARGV[5] ~= '' and (record[4] or '0') ~= ARGV[5] then return 'added' end
write_when_full(KEYS[1])
if before == 'running' then
  redis.call('HSET', KEYS[1], 'ran_ms', (record[3] or 0) + math.max(0, now - (record[2] or now)))
elseif ARGV[1] == 'running' then
  redis.call('HSET', KEYS[1], 'since_ms', now)
end
-- `created_ms` differs for an earlier run of the same name.
local entered = ARGV[1] == 'created' and 'reopened_ms' or ARGV[1] .. '_ms'
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'reason', ARGV[2], entered, now)
redis.call('PUBLISH', ARGV[4], 'map')
return before
