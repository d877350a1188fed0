-- release_partition: give up a partition, so that another shard need not wait.
-- KEYS[1] meta  hash  owner, epoch, until
-- ARGV[1] epoch
-- returns 1, or 0 when it was no longer ours
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
write_when_full(KEYS[1])
redis.call('HSET', KEYS[1], 'owner', '', 'until', 0, 'sleep', 0)
return 1
