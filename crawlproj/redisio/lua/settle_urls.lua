-- settle_urls: close leases, hand on their pages, and say when their domains are due again.
-- KEYS[1] meta     hash    epoch; counters
-- KEYS[2] ready    zset    domain, scored by the time it is due (ms)
-- KEYS[3] domains  hash    domain -> next out fails admitted fetched delay
-- KEYS[4] leases   zset    number lane domain entry, scored by number
-- KEYS[5] queue    prefix  of lists of entries, by lane:domain
-- KEYS[6] pages    list    of page envelopes
-- KEYS[7] counters hash    of the page queue
-- ARGV[1] epoch  ARGV[2] now (ms; 0: the server's clock)
-- ARGV[3..] per lease: token, outcome, reason, wait (ms from now), delay (ms), entry to try again, page;
--           the outcome 'paced' closes nothing and only notes the delay of the lease's domain
-- returns {ms until the next domain is due (-1: none waits), settled}; a lease settled before counts for nothing
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then return redis.error_reply('FENCED epoch ' .. ARGV[1] .. ' is over, now ' .. tostring(epoch)) end
local now = tonumber(ARGV[2])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local counts, settled, bytes = {}, 0, 0
for i = 3, #ARGV, 7 do
  local token, outcome, reason = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if outcome == 'paced' and redis.call('ZSCORE', KEYS[4], token) or redis.call('ZREM', KEYS[4], token) == 1 then
    local lane, domain, entry = string.match(token, '^%d+ (%d) (%S+) (.*)$')
    local state = redis.call('HGET', KEYS[3], domain)
    local due, out, fails, total, fetched, delay = string.match(state, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    due = math.max(tonumber(due), now + ARGV[i + 3])
    if outcome ~= 'paced' then out = out - 1 end
    if outcome == 'done' then
      fails, fetched = 0, fetched + 1
    elseif outcome == 'failed' then
      fails, fetched = fails + 1, fetched + 1
    elseif outcome == 'retry' then
      fails = fails + 1
      redis.call('RPUSH', KEYS[5] .. lane .. ':' .. domain, ARGV[i + 5])
    elseif outcome == 'returned' then
      redis.call('LPUSH', KEYS[5] .. lane .. ':' .. domain, entry)
    end
    if outcome ~= 'returned' and outcome ~= 'skipped' then delay = ARGV[i + 4] end
    if outcome == 'retry' or outcome == 'returned' then counts.waiting = (counts.waiting or 0) + 1 end
    counts[outcome] = (counts[outcome] or 0) + 1
    if reason ~= '' then counts['reason:' .. reason] = (counts['reason:' .. reason] or 0) + 1 end
    redis.call('HSET', KEYS[3], domain, table.concat({due, out, fails, total, fetched, delay}, ' '))
    if tonumber(out) == 0 and redis.call('EXISTS', KEYS[5] .. '0:' .. domain, KEYS[5] .. '1:' .. domain, KEYS[5] .. '2:' .. domain) > 0 then
      redis.call('ZADD', KEYS[2], due, domain)
    end
    if ARGV[i + 6] ~= '' then
      redis.call('RPUSH', KEYS[6], ARGV[i + 6])
      counts.pages, bytes = (counts.pages or 0) + 1, bytes + #ARGV[i + 6]
    end
    settled = settled + 1
  end
end
for name, count in pairs(counts) do redis.call('HINCRBY', KEYS[1], name, count) end
if bytes > 0 then redis.call('HINCRBY', KEYS[7], 'queued_bytes', bytes) end
local soonest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
return {soonest and math.max(0, soonest - now) or -1, settled}
