-- Tells what has changed in a namespace. Further ARGV: since which version (-1: everything), how many
-- changes to tell at most, and how many bytes they may have together.
--
-- The answer is the server's time, the version, the number of entries, and the version up to which it
-- tells; then names and bytes, or nothing for an entry that is gone. It tells up to -1 if everything has to
-- be read.
local since, most = tonumber(ARGV[3]), tonumber(ARGV[4])
expire()
local answer = { clock, version, size(), -1 }
if since < 0 or since > version or since < version - kept then
  return answer
end
local last = math.min(version, since + most)
if last > since then
  local changes = {}
  for v = since + 1, last do
    changes[#changes + 1] = string.format('change:%.0f', v)
  end
  local seen, names, entries, left = {}, {}, {}, tonumber(ARGV[5])
  for v, name in ipairs(redis.call('HMGET', key, unpack(changes))) do
    -- Another program has changed the hash.
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
      -- The answer ends before this one.
      last = seen[names[i]] - 1
      break
    end
    answer[3 + 2 * i], answer[4 + 2 * i] = names[i], value
  end
end
answer[4] = last
return answer
