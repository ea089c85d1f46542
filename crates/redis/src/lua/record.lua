-- Writes a record, or removes it if no value comes along, and says to all that something changed. It
-- does so only if what is there is as expected: `*` is anything, `-` is nothing, `=` goes before a value.
if ARGV[2] ~= '*' then
  local there = redis.call('HGET', KEYS[1], ARGV[1])
  if ARGV[2] ~= (there and '=' .. there or '-') then
    return 0
  end
end
if ARGV[3] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
return 1
