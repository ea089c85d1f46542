-- Limits that keep more than a few numbers: logs in lists, slots in lists, holds in hashes. Their
-- sums and ends are among the numbers of the main key, so that most attempts read nothing else.
local holds, held, surveying, whens = 0, 0, true, {}
local ticket, id = p[6], p[7]
ops = {}

local function later(i, ...)
  local list = ops[i] or {}
  ops[i] = list
  list[#list + 1] = { ... }
end

-- Puts a command with many words off, a few at a time.
local function later_many(i, command, key, words)
  for from = 1, #words, 1000 do
    later(i, command, key, unpack(words, from, math.min(from + 999, #words)))
  end
end

-- Sees to it that a key lives exactly as long as what it keeps.
local function expire(i, key, idle)
  if idle == math.huge then
    later(i, 'PERSIST', key)
  elseif idle > now then
    later(i, 'PEXPIRE', key, math.ceil((idle - now) / 1000) + slack)
  else
    later(i, 'DEL', key)
  end
end

-- What charge `i` keeps beside its numbers is not ours: nothing is done, anywhere.
local function damaged(i)
  error({ err = string.format('DAMAGED %d', i) })
end

-- How much a list or a hash holds, by its own command. Asked before anything is written, so that no
-- write fails after another.
local function size(i, command, key)
  local found = redis.pcall(command, key)
  return type(found) == 'number' and found or damaged(i)
end

-- The entries of a list from the front, a few at a time: each call answers the numbers of the next.
local function walk(i, key, pattern)
  local chunk, from, step, k = {}, 0, 4, 0
  return function()
    k = k + 1
    if not chunk[k] then
      if #chunk < step and from > 0 then
        return nil
      end
      if from > 0 then
        step = 64
      end
      chunk, k = redis.pcall('LRANGE', key, from, from + step - 1), 1
      if chunk.err then
        damaged(i)
      end
      from = from + #chunk
      if not chunk[1] then
        step = 4
        chunk = {}
        return nil
      end
    end
    local first, second = string.match(chunk[k], pattern)
    if not first then
      damaged(i)
    end
    return tonumber(first), tonumber(second), chunk[k]
  end
end

-- A log is a list of `moment ticket cost`, slots are a list of `number count`. Both are cut in front
-- as they age, and `freed` says when an entry is gone.
local ENTRY = '^(%d+) %x+ (%d+)$'
local SLOT = '^(%d+) (%d+)$'

-- Reads a whole list after the clock went back: what lies in the future was now.
local function rebuild(i, key, pattern, present, freed)
  local kept, used = {}, 0
  for first, count, text in walk(i, key, pattern) do
    if first > present then
      text = string.gsub(text, '^%d+', string.format('%.0f', present))
      first = present
    end
    local last = kept[#kept]
    if pattern == SLOT and last and last[1] == first then
      last[2] = last[2] + count
      last[3] = string.format('%.0f %.0f', first, last[2])
      used = used + count
    elseif freed(first) > now then
      kept[#kept + 1] = { first, count, text }
      used = used + count
    end
  end
  later(i, 'DEL', key)
  for _, entry in ipairs(kept) do
    later(i, 'RPUSH', key, entry[3])
  end
  return kept, used
end

-- Both kinds of sliding window. `r` has the sum, the first and the last entry, and for slots the
-- count of the last one, from `k` on.
local function slide(i, r, k, key, max, present, pattern, freed, cost)
  local used, oldest, newest, altered, kept, skip = r[k], r[k + 1], r[k + 2], false, nil, 0
  local slots = pattern == SLOT
  if used > 0 and cost > 0 and size(i, 'LLEN', key) == 0 then
    -- An operator deleted the list alone: its entries are forgotten.
    used, oldest, newest, altered = 0, 0, 0, true
  end
  if used > 0 and newest > present then
    kept, used = rebuild(i, key, pattern, present, freed)
    altered = true
    oldest, newest = kept[1] and kept[1][1] or 0, kept[1] and kept[#kept][1] or 0
    if slots then
      r[k + 3] = kept[1] and kept[#kept][2] or 0
    end
  elseif used > 0 and freed(oldest) <= now then
    local left = false
    altered = true
    for first, count in walk(i, key, pattern) do
      if freed(first) > now then
        oldest, left = first, true
        break
      end
      used, skip = used - count, skip + 1
    end
    if left then
      later(i, 'LTRIM', key, skip, -1)
    else
      used, oldest, newest = 0, 0, 0
      later(i, 'DEL', key)
    end
  end
  local when = 0
  if cost > max then
    when = -2
  elseif cost > 0 and used + cost > max then
    local excess, index = used + cost - max, 0
    local next = kept and function()
      index = index + 1
      if kept[index] then
        return kept[index][1], kept[index][2]
      end
    end or walk(i, key, pattern)
    for first, count in next do
      if skip > 0 then
        skip = skip - 1
      else
        excess, when = excess - count, freed(first) - now
        if excess <= 0 then
          break
        end
      end
    end
  end
  if cost > 0 then
    if slots and used > 0 and newest == present then
      r[k + 3] = r[k + 3] + cost
      later(i, 'LSET', key, -1, string.format('%.0f %.0f', present, r[k + 3]))
    else
      if used == 0 then
        later(i, 'DEL', key)
        oldest = present
      end
      if slots then
        r[k + 3] = cost
        later(i, 'RPUSH', key, string.format('%.0f %.0f', present, cost))
      else
        later(i, 'RPUSH', key, string.format('%.0f %s %.0f', present, ticket, cost))
      end
      newest = present
    end
    used = used + cost
  end
  r[k], r[k + 1], r[k + 2] = used, oldest, newest
  local idle = used > 0 and freed(newest) or 0
  if altered or cost > 0 then
    expire(i, key, idle)
  end
  return when, altered
end

-- The holds of a key: each an id and `ticket weight since renewed`.
local function read_hold(i, text)
  local who, weight, since, renewed = string.match(text, '^(%x+) (%d+) (%d+) (%d+)$')
  if not who then
    damaged(i)
  end
  return { who = who, weight = tonumber(weight), since = since, renewed = tonumber(renewed) }
end

local function read_holds(i, key)
  size(i, 'HLEN', key)
  local all, flat = {}, redis.call('HGETALL', key)
  for k = 1, #flat, 2 do
    all[flat[k]] = read_hold(i, flat[k + 1])
  end
  return all
end

local function count_holds(all)
  local used, oldest, newest = 0, math.huge, 0
  for _, hold in pairs(all) do
    used = used + hold.weight
    oldest, newest = math.min(oldest, hold.renewed), math.max(newest, hold.renewed)
  end
  return used, used > 0 and oldest or 0, newest
end

-- Drops the holds whose lease has run out. A renewal in the future was now.
local function age_holds(i, key, all, lease)
  local ended, set_back = {}, {}
  for name, hold in pairs(all) do
    if hold.renewed > now then
      hold.renewed = now
      set_back[#set_back + 1] = name
      set_back[#set_back + 1] = string.format('%s %.0f %s %.0f', hold.who, hold.weight, hold.since, now)
    end
    if now >= hold.renewed + lease then
      all[name] = nil
      ended[#ended + 1] = name
    end
  end
  later_many(i, 'HSET', key, set_back)
  later_many(i, 'HDEL', key, ended)
end

-- Brings the holds to the present; answers them all if they had to be read.
local function freshen_holds(i, r, k, key, lease)
  local all
  local before = adopted[i] and adopted[i].lease or 0
  for _, term in ipairs({ before, lease }) do
    if term > 0 and r[k] > 0 and (r[k + 2] > now or now >= r[k + 1] + term) then
      all = all or read_holds(i, key)
      age_holds(i, key, all, term)
      r[k], r[k + 1], r[k + 2] = count_holds(all)
    end
  end
  return all
end

-- Lets the holds that charge `i` had under another lease count no longer than they did.
local function age_adopted(i)
  local a = adopted[i]
  if a and a.lease > 0 then
    freshen_holds(i, rows[i], a.row, KEYS[a.key], 0)
    catch_up(i)
  end
end

-- When enough leases have run out to free `excess`.
local function room(all, excess, lease)
  local ends = {}
  for _, hold in pairs(all) do
    ends[#ends + 1] = hold
  end
  table.sort(ends, function(a, b)
    return a.renewed < b.renewed
  end)
  for _, hold in ipairs(ends) do
    excess = excess - hold.weight
    if excess <= 0 then
      return hold.renewed + lease - now
    end
  end
  return -1
end

local function hold(i, r, k, key, max, lease, enforced, cost)
  local all = freshen_holds(i, r, k, key, lease)
  local altered = all ~= nil
  local used, has = r[k], false
  if used > 0 and not all and (id or cost > 0) then
    size(i, 'HLEN', key)
  end
  if id and used > 0 then
    if all then
      has = all[id] ~= nil
    else
      has = redis.call('HEXISTS', key, id) == 1
    end
  end
  if surveying and enforced == 1 then
    holds, held = holds + 1, held + (has and 1 or 0)
  end
  local when = 0
  if cost == 0 or has then
    when = 0
  elseif cost > max then
    when = -2
  elseif used > max - cost then
    when = lease > 0 and room(all or read_holds(i, key), used + cost - max, lease) or -1
  end
  if cost > 0 and not has then
    if used == 0 then
      later(i, 'DEL', key)
      r[k + 1] = now
    end
    later(i, 'HSET', key, id or ticket, string.format('%s %.0f %.0f %.0f', ticket, cost, now, now))
    r[k], r[k + 1], r[k + 2] = used + cost, math.min(r[k + 1], now), math.max(r[k + 2], now)
  end
  local idle = 0
  if r[k] > 0 then
    idle = lease > 0 and r[k + 2] + lease or math.huge
  end
  if altered or cost > 0 then
    expire(i, key, idle)
  end
  return when, altered
end
