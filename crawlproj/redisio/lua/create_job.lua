-- create_job: record a job that waits to be started, unless its name or its idempotency key is taken.
-- KEYS[1] job     hash    the request
-- KEYS[2] all     zset    jobs by creation (ms)
-- KEYS[3] open    zset    jobs that have not ended, by creation (ms)
-- KEYS[4] answer  string  digest and job of the idempotency key
-- ARGV[1] job  ARGV[2] now (ms)  ARGV[3] token of this call, the same when it is repeated
-- ARGV[4] how long the idempotency key is remembered (ms; 0: there is none)  ARGV[5] digest of the request
-- ARGV[6] the most jobs that may be open  ARGV[7..] fields of the job
-- returns 'created'; 'taken' or 'full', with nothing created; 'known' and what the key is remembered for
local token = redis.call('HGET', KEYS[1], 'token')
if token == ARGV[3] then return {'created', ''} end
local answer = ARGV[4] ~= '0' and redis.call('GET', KEYS[4])
if answer then return {'known', answer} end
if token then return {'taken', ''} end
if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[6]) then return {'full', ''} end
-- Whoever changed an earlier one of this name as it was deleted has left fields behind.
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'token', ARGV[3], 'created_ms', ARGV[2], unpack(ARGV, 7))
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
if ARGV[4] ~= '0' then redis.call('SET', KEYS[4], ARGV[5] .. ' ' .. ARGV[1], 'PX', ARGV[4]) end
return {'created', ''}
