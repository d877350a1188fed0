-- write_fields: set fields of a hash, also when Redis is full: a heartbeat, or what a person asked for.
-- KEYS[1] hash  hash  whatever it holds
-- ARGV[1] how long it lasts from now (ms; 0: for good)  ARGV[2..] field, value
-- returns how many fields are new
write_when_full(KEYS[1])
local new = redis.call('HSET', KEYS[1], unpack(ARGV, 2))
if ARGV[1] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return new
