-- Tells what has changed in the ledger. ARGV: how many changes are kept in mind, since which version,
-- how many changes to tell at most, and how many bytes they may have together.
--
-- The answer is the time, the version, the number of entries, and the version up to which it tells; then
-- names and what is written under them, or nothing. It tells up to -1 if everything has to be read.
local key, kept, since, most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local version = tonumber(redis.call('HGET', key, 'version') or 0)
local size = redis.call('HLEN', key) - math.min(version, kept) - math.min(version, 1)
local answer = { time[1] * 1000000 + time[2], version, size, -1 }
if since < 0 or since > version or since < version - kept then
  return answer
end
local last = math.min(version, since + most)
if last > since then
  local changes = {}
  for v = since + 1, last do
    changes[#changes + 1] = string.format('change:%.0f', v)
  end
  local seen, names, entries, left = {}, {}, {}, tonumber(ARGV[4])
  for v, name in ipairs(redis.call('HMGET', key, unpack(changes))) do
    -- Somebody else has been at the hash.
    if not name then
      return answer
    end
    if not seen[name] then
      seen[name], names[#names + 1] = since + v, name
      entries[#entries + 1] = 'entry:' .. name
    end
  end
  for i, value in ipairs(redis.call('HMGET', key, unpack(entries))) do
    left = left - #names[i] - (value and #value or 0)
    if left < 0 and i > 1 then
      -- What changed before this one is told.
      last = seen[names[i]] - 1
      break
    end
    answer[3 + 2 * i], answer[4 + 2 * i] = names[i], value
  end
end
answer[4] = last
return answer
