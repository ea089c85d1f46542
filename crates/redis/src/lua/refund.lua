-- Refunds what a ticket took: mode 2 each charge, once; mode 4 the same, where the caller says what
-- was not forgotten; mode 6 all of it, because the attempt was refused elsewhere; mode 3 only what bears
-- the ticket's name.
-- Whether a charge is enforced tells in modes 2 and 4 what becomes of it: 0 nothing, because it was
-- forgotten; 1 it is refunded; 2 a ladder also forgets what came before; 3 it stays, and only what it
-- held ends.
local odd = impossible()
if odd then
  return { now, -4, odd, 'garbage' }
end
local moment, altered = p[8], false
local asked = {}
for _, command in ipairs({ 'SET', 'SETRANGE', 'DEL' }) do
  insist(command, KEYS[1], asked)
end
for i = 1, n do
  limits(i, function(kind)
    local needed = kind == 8 and { 'HDEL', 'PEXPIRE', 'PERSIST' } or kind >= 6 and { 'LREM', 'LSET', 'RPUSH', 'PEXPIRE' }
    for _, command in ipairs(needed or {}) do
      insist(command, KEYS[1], asked)
    end
  end)
end
if mode == 2 or mode == 4 then
  -- The store remembers for 32 days at most whether a ticket was refunded.
  if now - moment > 32 * 86400000000 then
    return { now, 2 }
  end
  -- The same where there are ladders, as soon as nothing that was taken counts any more.
  local age = tonumber(ARGV[3])
  if age > 0 and now - moment >= age then
    return { now, 2 }
  end
  -- The last keys mark what was refunded, one for each charge. The key before them tells up to when
  -- rules were forgotten.
  local marks = #KEYS - n
  local forgotten = mode == 2 and redis.call('HMGET', KEYS[marks], '*', unpack(ARGV, 4))
  local status = 1
  for i = 1, n do
    local at = starts[i] + 4
    if forgotten then
      local known = moment > tonumber(forgotten[1] or 0) and moment > tonumber(forgotten[i + 1] or 0)
      p[at] = known and p[at] or 0
    end
    if not redis.call('SET', KEYS[marks + i], '1', 'NX', 'PX', p[7]) then
      p[at] = 0
    elseif p[at] > 0 then
      status = 0
    elseif status == 1 then
      status = 2
    end
  end
  if status > 0 then
    return { now, status }
  end
end

local function ends_of(key, pattern)
  local first, last = redis.call('LINDEX', key, 0), redis.call('LINDEX', key, -1)
  if not first then
    return 0, 0, 0
  end
  local number, count = string.match(last, pattern)
  return tonumber((string.match(first, pattern))), tonumber(number), tonumber(count)
end

-- What one charge cost, and how much of that comes back.
local cost, back = 0, 0

-- What stays of an entry of the ticket that counts so much.
local function rest_of(count)
  return back < cost and math.max(0, count - back) or 0
end

-- Takes the ticket's entry out of a log, or makes it smaller.
local function refund_log(i, r, k, key, period)
  local gone = 0
  if mode ~= 3 and back == cost then
    local entry = string.format('%.0f %s %.0f', moment, ticket, cost)
    gone = redis.call('LREM', key, -1, entry) * cost
  end
  if gone == 0 then
    local index = 0
    for _, _, entry in walk(i, key, ENTRY) do
      local at, who, count = string.match(entry, '^(%d+) (%x+) (%d+)$')
      if who == ticket then
        local rest = rest_of(tonumber(count))
        gone = tonumber(count) - rest
        if rest == 0 then
          redis.call('LREM', key, -1, entry)
        else
          redis.call('LSET', key, index, string.format('%s %s %.0f', at, who, rest))
        end
        break
      end
      index = index + 1
    end
  end
  if gone > 0 then
    r[k] = r[k] - gone
    r[k + 1], r[k + 2] = ends_of(key, ENTRY)
    expire(i, key, r[k] > 0 and math.max(r[k + 2] + period, now + 1) or 0)
    altered = true
  end
end

-- Credits the slot that was charged.
local function refund_slot(i, r, k, key, slot, period)
  local wanted, index = math.floor(moment / slot), 0
  for number, count in walk(i, key, SLOT) do
    if number == wanted then
      local gone = math.min(back, count)
      if gone == count then
        redis.call('LREM', key, 1, string.format('%.0f %.0f', number, count))
      else
        redis.call('LSET', key, index, string.format('%.0f %.0f', number, count - gone))
      end
      r[k], altered = r[k] - gone, true
      r[k + 1], r[k + 2], r[k + 3] = ends_of(key, SLOT)
      expire(i, key, r[k] > 0 and math.max((r[k + 2] + 1) * slot + period, now + 1) or 0)
      return
    end
    index = index + 1
  end
end

-- Ends the ticket's hold. A hold has the ticket's name, unless it was taken under an id. The caller sends the id only if
-- nothing else tells what was taken; without it, all holds are searched.
local function refund_hold(i, r, k, key, lease)
  size(i, 'HLEN', key)
  local sent_id = (mode == 3 or mode == 6) and id
  local name, ended = sent_id or ticket, {}
  local text = redis.call('HGET', key, name)
  local one = text and read_hold(i, text)
  if one and one.who == ticket then
    ended[name] = one
  elseif not sent_id then
    for held, one in pairs(read_holds(i, key)) do
      ended[held] = one.who == ticket and one or nil
    end
  end
  for name, one in pairs(ended) do
    local rest = rest_of(one.weight)
    if rest > 0 then
      later(i, 'HSET', key, name, string.format('%s %.0f %s %.0f', one.who, rest, one.since, one.renewed))
      r[k], ended[name], altered = r[k] - (one.weight - rest), nil, true
    end
  end
  if next(ended) then
    altered = true
    end_holds(i, r, k, key, nil, ended)
    local idle = lease > 0 and r[k + 2] + lease or math.huge
    expire(i, key, r[k] > 0 and math.max(idle, now + 1) or 0)
  end
end

-- Takes the ticket's failure out of a ladder, or all up to it. What is older than a failure is
-- remembered by itself can no longer be refunded.
local function refund_failures(i, r, k, key, forget, clears)
  if mode ~= 3 and now >= moment + forget then
    return
  end
  local own, earlier, gone, index, entries = nil, 0, 0, 0, {}
  for at, count, text in walk(i, key, ENTRY) do
    index = index + 1
    entries[index] = { at, count, text }
    if not own and string.match(text, ' (%x+) ') == ticket then
      own = index
    end
    if earlier == index - 1 and at <= moment then
      earlier = index
    end
  end
  if clears then
    local last = own or earlier
    for j = 1, last do
      gone = gone + entries[j][2]
    end
    later(i, 'LTRIM', key, last, -1)
    own = nil
  elseif own then
    local at, count, text = unpack(entries[own])
    local rest = rest_of(count)
    gone = count - rest
    if rest > 0 then
      later(i, 'LSET', key, own - 1, string.format('%.0f %s %.0f', at, ticket, rest))
    else
      later(i, 'LREM', key, -1, text)
      table.remove(entries, own)
      index = index - 1
    end
  end
  if gone > 0 then
    r[k] = r[k] - gone
    r[k + 1] = r[k] > 0 and entries[index][1] or 0
    expire(i, key, r[k] > 0 and math.max(r[k + 1] + forget, now + 1) or 0)
    altered = true
  end
end

local function refund_count(r, k, same)
  if same then
    r[k], altered = math.max(0, r[k] - back), true
  end
end

-- A bucket regains what it has not refilled by itself since the take: by how much less a smaller take
-- would have left by now.
local function refund_tokens(r, k, at)
  local numerator, denominator, empty = p[at + 1], p[at + 2], p[at + 3]
  local function left_of(cost)
    return math.max(0, math.min(cost, p[at + 5]) * numerator - math.max(0, now - moment) * denominator)
  end
  local full, rest, backlog = r[k], r[k + 1], 0
  if full > now or (full == now and rest > 0) then
    backlog = empty
    if full - now <= p[at + 4] then
      backlog = math.min(empty, (full - now) * denominator + rest)
    end
  end
  backlog = math.max(0, backlog - (left_of(cost) - left_of(cost - back)))
  local whole = math.floor(backlog / denominator)
  r[k], r[k + 1], altered = now + whole, backlog - whole * denominator, true
end

local function credit(i, fate)
  local r = rows[i]
  local keeps = mode ~= 3 and mode ~= 6 and fate == 3
  limits(i, function(kind, at, k)
    if keeps and kind ~= 8 then
      return
    elseif kind == 6 and r[k] > 0 then
      refund_log(i, r, k, KEYS[p[at + 3]], p[at + 2])
    elseif kind == 8 and r[k] > 0 then
      refund_hold(i, r, k, KEYS[p[at + 3]], p[at + 2])
    elseif kind == 9 and r[k] > 0 then
      refund_failures(i, r, k, KEYS[p[at + 3]], p[at + 2], mode ~= 3 and mode ~= 6 and fate == 2)
    elseif mode == 3 then
      return
    elseif kind == 1 then
      refund_count(r, k + 1, r[k] ~= 0 and r[k] <= moment and moment < r[k] + p[at + 2])
      if mode == 6 and r[k] == moment and r[k + 1] == 0 then
        -- The window was begun by the attempt that was refused.
        r[k] = 0
      end
    elseif kind == 2 and r[k] > 0 then
      refund_tokens(r, k, at)
    elseif kind == 3 and moment >= p[at + 2] and moment < p[at + 4] then
      refund_count(r, k + 1, r[k] == (moment < p[at + 3] and p[at + 3] or p[at + 4]))
    elseif kind == 4 then
      refund_count(r, k, true)
    elseif kind == 7 and r[k] > 0 then
      refund_slot(i, r, k, KEYS[p[at + 4]], p[at + 3], p[at + 2])
    end
  end)
end

for i = 1, n do
  local fate = p[starts[i] + 4]
  if mode == 3 or mode == 6 or fate > 0 then
    altered = adopted[i] ~= nil
    cost, back = p[starts[i] + 5], p[starts[i] + 6]
    age_adopted(i)
    credit(i, fate)
    if altered then
      put(i)
    end
  end
end
return { now, 0 }
