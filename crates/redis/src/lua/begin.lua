-- What every script begins with: the request, the time, the charges and what is kept under their keys.
--
-- ARGV[1] is the request, a flat array: cost, mode, deadline, time, slack, ticket, id, moment of the
-- take, number of charges, and then each charge: its length, how its limits are written, how its
-- numbers are packed, where they begin, whether it is enforced, and its limits, each as a kind and what
-- that kind needs.
-- KEYS holds the main key of each charge, and then the keys of its logs and holds.
--
-- The answer is the time and a status: -1 too late, -2 other limits, -3 stale calendar, -4 damaged;
-- or what came of it. `p`, `now`, `n`, `vals`, `starts` and `rows` are there for what follows.
local p = cmsgpack.unpack(ARGV[1])
local cost, mode, now, slack, n = p[1], p[2], p[4], p[5], p[9]
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- Whoever asked has given up by now: an answer that nobody waits for must not count.
if p[3] ~= 0 and now > p[3] then
  return { now, -1 }
end

local vals
if n == 1 then
  vals = { redis.call('GET', KEYS[1]) }
else
  vals = redis.call('MGET', unpack(KEYS, 1, n))
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

local starts, rows, at, others = {}, {}, 10, nil
for i = 1, n do
  starts[i] = at
  local text, v = p[at + 1], vals[i]
  if v then
    if string.sub(v, 1, #text) ~= text then
      others = others or { now, -2 }
      others[#others + 1] = i
      others[#others + 1] = v
    elseif #v ~= #text + 8 * #p[at + 2] then
      return { now, -4, i, 'garbage' }
    else
      rows[i] = { struct.unpack(p[at + 2], v, #text + 1) }
    end
  else
    local r = {}
    for k = 1, #p[at + 2] do
      r[k] = 0
    end
    rows[i] = r
  end
  at = at + p[at]
end
if others then
  return others
end

-- Answers which charge has numbers that nobody counted. They never conform and always look as if the
-- clock had gone back, so whoever finds neither need not ask.
local function impossible()
  for i = 1, n do
    local packing = p[starts[i] + 2]
    if vals[i] and #packing > 0 then
      local numbers = { struct.unpack(packing, vals[i], #p[starts[i] + 1] + 1) }
      if math.max(unpack(numbers, 1, #packing)) > 9007199254740991 then
        return i
      end
    end
  end
end
local dirty, moved, ops = {}, {}, nil

-- Does what was put off for charge `i`.
local function catch_up(i)
  if ops and ops[i] then
    for _, op in ipairs(ops[i]) do
      redis.call(unpack(op))
    end
    ops[i] = nil
  end
end

-- From when on charge `i` can be forgotten without a trace, as its row has it.
local function idle_of(i)
  local r, at, k, idle = rows[i], starts[i] + 5, 1, 0
  local stop = starts[i] + p[starts[i]]
  while at < stop do
    local kind, ends = p[at], 0
    if kind == 1 then
      ends = r[k] ~= 0 and r[k] + p[at + 2] or 0
      at, k = at + 3, k + 2
    elseif kind == 2 then
      ends = r[k] + (r[k + 1] > 0 and 1 or 0)
      at, k = at + 6, k + 2
    elseif kind == 3 then
      ends = r[k]
      at, k = at + 5, k + 2
    elseif kind == 4 then
      ends = r[k] > 0 and math.huge or 0
      at, k = at + 2, k + 1
    elseif kind == 5 then
      at = at + 2
    elseif kind == 6 then
      ends = r[k] > 0 and r[k + 2] + p[at + 2] or 0
      at, k = at + 4, k + 3
    elseif kind == 7 then
      ends = r[k] > 0 and (r[k + 2] + 1) * p[at + 3] + p[at + 2] or 0
      at, k = at + 5, k + 4
    else
      if r[k] > 0 then
        ends = p[at + 2] > 0 and r[k + 2] + p[at + 2] or math.huge
      end
      at, k = at + 4, k + 3
    end
    if ends > idle then
      idle = ends
    end
  end
  return idle
end

-- Writes charge `i` down as its row has it, and answers its numbers. What has aged out by now is not
-- worth keeping, but for `least` microseconds.
local function write(i, least)
  local at = starts[i]
  local text, packing, idle = p[at + 1], p[at + 2], nil
  local numbers = struct.pack(packing, unpack(rows[i], 1, #packing))
  if not moved[i] then
    -- It lives exactly as long as before.
    redis.call('SETRANGE', KEYS[i], p[at + 3], numbers)
  else
    idle = math.max(idle_of(i), now + least)
    if idle == math.huge then
      redis.call('SET', KEYS[i], text .. numbers)
    elseif idle > now then
      redis.call('SET', KEYS[i], text .. numbers, 'PX', math.ceil((idle - now) / 1000) + slack)
    elseif vals[i] then
      redis.call('DEL', KEYS[i])
    end
  end
  catch_up(i)
  if adopted[i] then
    for _, key in ipairs(adopted[i].gone) do
      redis.call('DEL', KEYS[key])
    end
  end
  return numbers
end
