-- Notes up to when a rule, or everything (`*`), was forgotten: what was taken before cannot be
-- refunded. ARGV: the rule, the time (0: the server's), and how long that matters in milliseconds.
local now = tonumber(ARGV[2])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local before = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', math.max(now, before)))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return now
