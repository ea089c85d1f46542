-- Changes the ledger. ARGV: how many changes are kept in mind, and then for each change what it does
-- (`write`, `remove`, or `end` to remove only what is still the same), the name and a value.
--
-- The hash holds each entry as `entry:NAME`, the `version`, and under `change:VERSION` the name of the
-- entry that changed with it.
local key, kept = KEYS[1], tonumber(ARGV[1])
local version = tonumber(redis.call('HGET', key, 'version') or 0)
local before = version
for i = 2, #ARGV, 3 do
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
local time = redis.call('TIME')
return { time[1] * 1000000 + time[2], version }
