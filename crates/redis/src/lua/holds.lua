-- Renews, ends, claims or replaces the holds of one key, or brings them to the present before they are
-- listed. ARGV[3] is the order, the rest are ids, each with its weight if they are claimed.
--
-- The answer is the time, 0, whether all that were named are held (or were), and those of them that are;
-- where all holds are asked for, how much is held instead. The caller then reads them, a few at a time: no
-- order reads more than it names unless a lease has run out.
local odd = impossible()
if odd then
  return { now, -4, odd, 'garbage' }
end
local order, place = ARGV[3], nil
limits(1, function(kind, at, k)
  if kind == 8 then
    place = { key = KEYS[p[at + 3]], max = p[at + 1], lease = p[at + 2], k = k }
  end
end)

local function text_of(one)
  return string.format('%s %.0f %s %.0f', one.who, one.weight, one.since, one.renewed)
end

-- A hold of this much that begins now.
local function fresh(weight)
  return { who = ticket, weight = weight, since = string.format('%.0f', now), renewed = now }
end

-- Puts these holds under the key.
local function write_holds(key, some)
  local words = {}
  for name, one in pairs(some) do
    words[#words + 1] = name
    words[#words + 1] = text_of(one)
  end
  later_many(1, 'HSET', key, words)
end

-- The holds of the ids that the order names, every `step`th word, of all that were read or of the key.
local function read_named(key, read, used, step)
  local named = {}
  if not read and used > 0 then
    size(1, 'HLEN', key)
  end
  for from = 4, #ARGV, 1000 do
    local names = {}
    for j = from, math.min(from + 999, #ARGV), step do
      names[#names + 1] = ARGV[j]
    end
    local texts = (not read and used > 0) and redis.call('HMGET', key, unpack(names)) or {}
    for j, name in ipairs(names) do
      if read then
        named[name] = read[name]
      elseif texts[j] then
        named[name] = read_hold(1, texts[j])
      end
    end
  end
  return named
end

-- Renews or claims many, without reading those that are not named.
local function renew_many(r, k, read, step)
  local key, some, complete = place.key, {}, true
  local named = read_named(key, read, r[k], step)
  for j = 4, #ARGV, step do
    local name = ARGV[j]
    local one = named[name]
    if one then
      one.renewed = now
    elseif step == 2 and tonumber(ARGV[j + 1]) <= place.max - r[k] then
      if r[k] == 0 then
        later(1, 'DEL', key)
        r[k + 1] = now
      end
      one = fresh(tonumber(ARGV[j + 1]))
      named[name], r[k] = one, r[k] + one.weight
    end
    some[name] = one
    complete = complete and one ~= nil
  end
  if next(some) then
    r[k + 2] = math.max(r[k + 2], now)
    write_holds(key, some)
  end
  return some, complete
end

-- Ends many, without reading those that are not named.
local function release_many(r, k, read)
  local named, some, complete = read_named(place.key, read, r[k], 1), {}, true
  for j = 4, #ARGV do
    local name = ARGV[j]
    complete = complete and named[name] ~= nil
    some[name], named[name] = some[name] or named[name], nil
  end
  if next(some) then
    end_holds(1, r, k, place.key, read, some)
  end
  return some, complete
end

-- Makes exactly the named ids held.
local function replace(r, k, read)
  local named, held = read_named(place.key, read, r[k], 1), {}
  for j = 4, #ARGV do
    held[ARGV[j]] = held[ARGV[j]] or named[ARGV[j]] or fresh(1)
  end
  later(1, 'DEL', place.key)
  write_holds(place.key, held)
  r[k], r[k + 1], r[k + 2] = count_holds(held)
end

local some, complete, altered, found = {}, false, adopted[1] ~= nil, false
if place then
  local r, k = rows[1], place.k
  local read = freshen_holds(1, r, k, place.key, place.lease)
  altered = altered or read ~= nil
  if order == 'renew' or order == 'claim' then
    some, complete = renew_many(r, k, read, order == 'claim' and 2 or 1)
  elseif order == 'release' then
    some, complete = release_many(r, k, read)
  elseif order == 'replace' then
    replace(r, k, read)
    found = true
  end
  found = found or next(some) ~= nil
  if found then
    altered = true
    local idle = 0
    if r[k] > 0 then
      idle = place.lease > 0 and r[k + 2] + place.lease or math.huge
    end
    expire(1, place.key, idle)
  end
end
if altered then
  put(1)
end
local reply = { now, 0, complete and 1 or 0 }
if order == 'list' or order == 'replace' then
  reply[4] = place and rows[1][place.k] or 0
end
for name, one in pairs(some) do
  reply[#reply + 1] = name
  reply[#reply + 1] = text_of(one)
end
return reply
