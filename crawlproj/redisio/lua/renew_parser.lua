-- renew_parser: replace the heartbeat of a parser, also when Redis is full.
-- KEYS[1] parsers  hash  parser -> heartbeat
-- ARGV[1] parser  ARGV[2] its heartbeat
-- returns 0; refuses when the parser was removed: its name is not used again
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return redis.error_reply('FENCED the pages of parser ' .. ARGV[1] .. ' were reclaimed while it was silent')
end
write_when_full(KEYS[1])
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
