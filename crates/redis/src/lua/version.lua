-- Tells the time, the version of the records, how many there are, and the secret.
local time = redis.call('TIME')
local found = redis.call('HMGET', KEYS[1], 'version', 'secret')
local size = redis.call('HLEN', KEYS[1]) - (found[1] and 1 or 0) - (found[2] and 1 or 0)
return { time[1] * 1000000 + time[2], tonumber(found[1] or 0), size, found[2] }
