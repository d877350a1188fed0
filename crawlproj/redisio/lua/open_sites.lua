-- open_sites: add sites to the scope of a run, also when Redis is full: where a seed leads cannot wait.
-- KEYS[1] sites  set  hosts without www.
-- ARGV[1..] sites
-- returns how many are new
write_when_full(KEYS[1])
return redis.call('SADD', KEYS[1], unpack(ARGV))
