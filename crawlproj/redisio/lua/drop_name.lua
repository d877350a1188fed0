-- drop_name: release a name, one's own or that of a process known to be dead.
-- KEYS[1] name  string  instance, a space, and what is known about it
-- ARGV[1] instance
-- returns 1, or 0 if another process holds it
local held = redis.call('GET', KEYS[1])
if not held or string.match(held, '^%S+') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
