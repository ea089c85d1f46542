-- One bucket and nothing else: when it is full again, in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full = tonumber(redis.call('GET', KEYS[1]) or 0)
if full < now then
  full = now
end
local wanted = full + cost * interval
if wanted - now > burst * interval then
  return { 0, wanted - now - burst * interval }
end
redis.call('SET', KEYS[1], string.format('%.0f', wanted), 'PX', math.ceil((wanted - now) / 1000))
return { 1, math.floor((burst * interval - (wanted - now)) / interval) }
