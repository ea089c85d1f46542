-- Lists, renews, ends or replaces the holds of one key. ARGV[3] is the order, the rest are ids.
local odd = impossible()
if odd then
  return { now, -4, odd, 'garbage' }
end
local order, found, place, all = ARGV[3], false, nil, {}
limits(1, function(kind, at, k)
  if kind == 8 then
    place = { key = KEYS[p[at + 3]], lease = p[at + 2], k = k }
  end
end)

local function text_of(one)
  return string.format('%s %.0f %s %.0f', one.who, one.weight, one.since, one.renewed)
end

-- Puts exactly these holds under the key, a few at a time.
local function replace(key, kept)
  later(1, 'DEL', key)
  local op = { 'HSET', key }
  for name, one in pairs(kept) do
    op[#op + 1] = name
    op[#op + 1] = text_of(one)
    if #op > 1000 then
      later(1, unpack(op))
      op = { 'HSET', key }
    end
  end
  if #op > 2 then
    later(1, unpack(op))
  end
end

local altered = adopted[1] ~= nil
if place then
  local r, k, key = rows[1], place.k, place.key
  local read = freshen_holds(1, r, k, key, place.lease)
  altered = altered or read ~= nil
  all = read or (r[k] > 0 and read_holds(1, key)) or {}
  local one = all[ARGV[4]]
  if order == 'renew' and one then
    found, one.renewed = true, now
    later(1, 'HSET', key, ARGV[4], text_of(one))
  elseif order == 'release' and one then
    found, all[ARGV[4]] = true, nil
    later(1, 'HDEL', key, ARGV[4])
  elseif order == 'replace' then
    found = true
    local kept = {}
    for j = 4, #ARGV do
      local fresh = { who = ticket, weight = 1, since = string.format('%.0f', now), renewed = now }
      kept[ARGV[j]] = kept[ARGV[j]] or all[ARGV[j]] or fresh
    end
    all = kept
    replace(key, all)
  end
  if found then
    r[k], r[k + 1], r[k + 2] = count_holds(all)
    altered = true
    local idle = 0
    if r[k] > 0 then
      idle = place.lease > 0 and r[k + 2] + place.lease or math.huge
    end
    expire(1, key, idle)
  end
end
if altered then
  put(1)
end
local reply = { now, 0, (found and order ~= 'replace') and 1 or 0 }
for name, one in pairs(all) do
  reply[#reply + 1] = name
  reply[#reply + 1] = text_of(one)
end
return reply
