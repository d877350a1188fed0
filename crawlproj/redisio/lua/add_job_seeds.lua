-- add_job_seeds: add seeds to a job that waits to be started, each once.
-- KEYS[1] job  hash  seeds (lines)
-- ARGV[1..] seeds
-- returns how many are new; repeated, 0
local lines, known = {}, {}
for line in string.gmatch(redis.call('HGET', KEYS[1], 'seeds') or '', '[^\n]+') do
  lines[#lines + 1], known[line] = line, true
end
local before = #lines
for _, seed in ipairs(ARGV) do
  if not known[seed] then lines[#lines + 1], known[seed] = seed, true end
end
redis.call('HSET', KEYS[1], 'seeds', table.concat(lines, '\n'))
return #lines - before
