-- Changes the ledger. ARGV: how many changes are kept in mind, until when (0: whenever), and then for each
-- change what it does (`write`, `remove`, or `end` to remove only what is still the same), the name and a
-- value. The answer is the time, and the version or -1 if it came too late.
--
-- The hash holds each entry as `entry:NAME`, the `version`, and under `change:VERSION` the name of the
-- entry that changed with it.
local key, kept, deadline = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- Whoever asked has given up by now, and said so.
if deadline ~= 0 and now > deadline then
  return { now, -1 }
end
local version = tonumber(redis.call('HGET', key, 'version') or 0)
local before = version
for i = 3, #ARGV, 3 do
  local what, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local entry, changed = 'entry:' .. name, 1
  if what == 'write' then
    redis.call('HSET', key, entry, value)
  elseif what == 'remove' or redis.call('HGET', key, entry) == value then
    changed = redis.call('HDEL', key, entry)
  else
    changed = 0
  end
  if changed == 1 then
    version = version + 1
    redis.call('HSET', key, string.format('change:%.0f', version), name)
    redis.call('HDEL', key, string.format('change:%.0f', version - kept))
  end
end
if version > before then
  redis.call('HSET', key, 'version', string.format('%.0f', version))
end
return { now, version }
