-- change_rules: set the rules of a run, if they are still what the caller has read, and notify its processes.
-- KEYS[1] record  hash  rules
-- ARGV[1] the rules read ('': there were none)  ARGV[2] the new ones  ARGV[3] wake channel
-- returns 1 if the rules are the new ones now, 0 if somebody else changed them or the run was deleted
local rules = redis.call('HMGET', KEYS[1], 'rules', 'state')
if rules[1] == ARGV[2] then return 1 end
if (rules[1] or '') ~= ARGV[1] or not rules[2] then return 0 end
write_when_full(KEYS[1])
redis.call('HSET', KEYS[1], 'rules', ARGV[2])
redis.call('PUBLISH', ARGV[3], 'map')
return 1
