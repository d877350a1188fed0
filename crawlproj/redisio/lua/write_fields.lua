-- write_fields: set fields of a hash, also when Redis is full: a heartbeat, or what a person asked for.
-- KEYS[1] hash  hash  whatever it holds
-- ARGV[1..] field, value
-- returns how many fields are new
write_when_full(KEYS[1])
return redis.call('HSET', KEYS[1], unpack(ARGV))
