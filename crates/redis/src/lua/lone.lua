-- Takes from a single bucket, which is the most frequent attempt. It is the fast path: its answer is that of
-- settle.lua.
--
-- ARGV[1] is how the limit is written; ARGV[2] holds cost, deadline, time, slack and the bucket's
-- numbers.
local text = ARGV[1]
local cost, deadline, now, slack, numerator, denominator, empty, fills_in, burst = struct.unpack('LLLLLLLLL', ARGV[2])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if deadline ~= 0 and now > deadline then
  return { now, -1 }
end
local v, backlog, altered = redis.call('GET', KEYS[1]), 0, false
if v then
  if #v > 8192 then
    return { now, -4, 1, 'garbage' }
  end
  if string.sub(v, 1, #text) ~= text then
    return { now, -2, 1, v }
  end
  if #v ~= #text + 16 then
    return { now, -4, 1, 'garbage' }
  end
  local full, rest = struct.unpack('LL', v, #text + 1)
  if full > 9007199254740991 or rest > 9007199254740991 then
    return { now, -4, 1, 'garbage' }
  end
  altered = true
  if full > now or (full == now and rest > 0) then
    backlog = empty
    if full - now <= fills_in and (full - now) * denominator + rest <= empty then
      backlog, altered = (full - now) * denominator + rest, false
    end
  end
end
local wanted, status = backlog + cost * numerator, 5
if cost > burst or wanted > empty then
  if not altered then
    return { now, 0, v and string.sub(v, #text + 1) or '' }
  end
  wanted, status = backlog, 0
end
if wanted == 0 then
  redis.call('DEL', KEYS[1])
  return { now, status, '' }
end
local full, rest = now + wanted, 0
if denominator ~= 1 then
  local whole = math.floor(wanted / denominator)
  full, rest = now + whole, wanted - whole * denominator
end
local numbers = struct.pack('LL', full, rest)
redis.call('SET', KEYS[1], text .. numbers, 'PX', math.ceil((full + (rest > 0 and 1 or 0) - now) / 1000) + slack)
return { now, status, numbers }
