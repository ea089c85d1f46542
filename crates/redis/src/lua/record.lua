-- Writes a record, or removes it if no value comes along, and says to all that something changed.
if ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return redis.call('HINCRBY', KEYS[1], 'version', 1)
