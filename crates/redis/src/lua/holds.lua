-- Lists, renews, ends, claims or replaces the holds of one key. ARGV[3] is the order, the rest are ids,
-- each with its weight if they are claimed.
local odd = impossible()
if odd then
  return { now, -4, odd, 'garbage' }
end
local order, found, place, all = ARGV[3], false, nil, {}
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

-- Writes a command for many ids later, a few at a time.
local function later_many(command, key, words)
  for from = 1, #words, 1000 do
    later(1, command, key, unpack(words, from, math.min(from + 999, #words)))
  end
end

-- Puts these holds under the key.
local function write_holds(key, some)
  local words = {}
  for name, one in pairs(some) do
    words[#words + 1] = name
    words[#words + 1] = text_of(one)
  end
  later_many('HSET', key, words)
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

-- Ends many.
local function release_many(key, held)
  local some, names, complete = {}, {}, true
  for j = 4, #ARGV do
    local name = ARGV[j]
    complete = complete and held[name] ~= nil
    if held[name] then
      names[#names + 1] = name
      some[name], held[name] = held[name], nil
    end
  end
  later_many('HDEL', key, names)
  return some, complete
end

local altered, complete = adopted[1] ~= nil, nil
if place then
  local r, k, key = rows[1], place.k, place.key
  local read = freshen_holds(1, r, k, key, place.lease)
  altered = altered or read ~= nil
  if order == 'renew-many' or order == 'claim' then
    all, complete = renew_many(r, k, read, order == 'claim' and 2 or 1)
    found = next(all) ~= nil
  else
    all = read or (r[k] > 0 and read_holds(1, key)) or {}
    local one, held = all[ARGV[4]], all
    if order == 'renew' and one then
      found, one.renewed = true, now
      later(1, 'HSET', key, ARGV[4], text_of(one))
    elseif order == 'release' and one then
      found, all[ARGV[4]] = true, nil
      later(1, 'HDEL', key, ARGV[4])
    elseif order == 'release-many' then
      all, complete = release_many(key, held)
      found = next(all) ~= nil
    elseif order == 'replace' then
      found, held = true, {}
      for j = 4, #ARGV do
        held[ARGV[j]] = held[ARGV[j]] or all[ARGV[j]] or fresh(1)
      end
      all = held
      later(1, 'DEL', key)
      write_holds(key, held)
    end
    if found then
      r[k], r[k + 1], r[k + 2] = count_holds(held)
    end
  end
  if found then
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
if complete == nil then
  complete = found and order ~= 'replace'
end
local reply = { now, 0, complete and 1 or 0 }
for name, one in pairs(all) do
  reply[#reply + 1] = name
  reply[#reply + 1] = text_of(one)
end
return reply
