-- What every script begins with: the request, the time, the charges and what is kept under their keys.
--
-- ARGV[1] is the request, a flat array: 1 if anything is taken, mode, deadline, time, slack, ticket, id, moment of the
-- take, number of charges, and then each charge: its length, how its limits are written, how its
-- numbers are packed, where they begin, whether it is enforced, what it costs, how much of that comes back
-- if it is refunded, and its limits, each as a kind and what that kind needs.
-- KEYS holds the main key of each charge, and then the keys of its logs and holds.
--
-- The answer is the time and a status: -1 too late, -2 other limits, -3 stale calendar, -4 damaged;
-- or the result of the script. The script that follows uses `p`, `now`, `n`, `vals`, `starts` and `rows`.
local call, find, pack_numbers, unpack_numbers = redis.call, string.find, struct.pack, struct.unpack
local p = cmsgpack.unpack(ARGV[1])
local takes, mode, now, slack, n = p[1] == 1, p[2], p[4], p[5], p[9]
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- The caller has given up by now: a call without a waiting caller must not count.
if p[3] ~= 0 and now > p[3] then
  return { now, -1 }
end

local vals
if n == 1 then
  vals = { call('GET', KEYS[1]) }
else
  vals = call('MGET', unpack(KEYS, 1, n))
  local missing
  for i = 1, n do
    if not vals[i] then
      missing = missing or {}
      missing[#missing + 1] = KEYS[i]
    end
  end
  -- MGET passes over a key of another type, which must not be overwritten.
  if missing and redis.call('EXISTS', unpack(missing)) > 0 then
    for i = 1, n do
      if not vals[i] and redis.call('EXISTS', KEYS[i]) > 0 then
        return { now, -4, i, redis.call('TYPE', KEYS[i]).ok }
      end
    end
  end
end

-- What the caller worked out for states that other limits left behind; worthless if they changed.
local adopted = {}
if ARGV[2] and ARGV[2] ~= '' then
  local same, all = true, cmsgpack.unpack(ARGV[2])
  for _, a in ipairs(all) do
    same = same and vals[a.charge] == a.old
  end
  for _, a in ipairs(same and all or {}) do
    vals[a.charge], adopted[a.charge] = a.new, a
  end
end

-- Tables that begin with room for a few entries need not grow.
local starts, rows, at, others = { nil, nil, nil, nil, nil, nil, nil, nil }, { nil, nil, nil, nil, nil, nil, nil, nil }, 10, nil
for i = 1, n do
  starts[i] = at
  local text, packing, v = p[at + 1], p[at + 2], vals[i]
  if v then
    if #v > 8192 then
      -- No counter is that long, and the caller does not take a reply of any length.
      return { now, -4, i, 'garbage' }
    elseif find(v, text, 1, true) ~= 1 then
      others = others or { now, -2 }
      others[#others + 1] = i
      others[#others + 1] = v
    elseif #v ~= #text + 8 * #packing then
      return { now, -4, i, 'garbage' }
    else
      rows[i] = { unpack_numbers(packing, v, #text + 1) }
    end
  else
    local r = {}
    for k = 1, #packing do
      r[k] = 0
    end
    rows[i] = r
  end
  at = at + p[at]
end
if others then
  return others
end
local dirty, moved, ops = { nil, nil, nil, nil, nil, nil, nil, nil }, { nil, nil, nil, nil, nil, nil, nil, nil }, nil
