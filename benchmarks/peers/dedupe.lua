-- Adds ARGV[1] to the counter KEYS[2], unless the token KEYS[1] was used within ARGV[2] seconds.
-- Both keys change in one script, so no crash can come between them.
if redis.call('SET', KEYS[1], '', 'NX', 'EX', ARGV[2]) then
  return redis.call('INCRBY', KEYS[2], ARGV[1])
end
return false
