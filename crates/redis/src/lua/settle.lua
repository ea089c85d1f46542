-- Takes every charge if all enforced ones conform, or none.

-- Brings charge `i` to the present and takes `cost` of it; answers whether that conforms.
local function weigh(i, cost)
  local at, r = starts[i], rows[i]
  local stop = at + p[at]
  local conforms, idle, change, move, k = true, 0, false, false, 1
  at = at + 4
  while at < stop do
    local kind = p[at]
    if kind == 1 then
      -- A window: start and count.
      local max, period, edge, count = p[at + 1], p[at + 2], r[k], r[k + 1]
      if edge > now then
        edge, change, move = now, true, true
      end
      if edge ~= 0 and now >= edge + period then
        edge, count, change, move = 0, 0, true, true
      end
      if cost > 0 then
        if cost > max or count > max - cost then
          conforms = false
        end
        if edge == 0 then
          edge, move = now, true
        end
        count = count + cost
      end
      r[k], r[k + 1] = edge, count
      if edge ~= 0 and edge + period > idle then
        idle = edge + period
      end
      at, k = at + 3, k + 2
    elseif kind == 2 then
      -- A bucket: when it is full, and what is left over of the last microsecond.
      local numerator, denominator, empty, full, rest = p[at + 1], p[at + 2], p[at + 3], r[k], r[k + 1]
      local backlog = 0
      if full > now or (full == now and rest > 0) then
        if full - now <= p[at + 4] then
          backlog = (full - now) * denominator + rest
        end
        if full - now > p[at + 4] or backlog > empty then
          backlog, change, move = empty, true, true
        end
      elseif full ~= 0 then
        change, move = true, true
      end
      if cost > 0 then
        if cost > p[at + 5] or backlog + cost * numerator > empty then
          conforms = false
        end
        backlog, move = backlog + cost * numerator, true
      end
      if backlog == 0 then
        full, rest = 0, 0
      elseif denominator == 1 then
        full, rest = now + backlog, 0
      else
        local whole = math.floor(backlog / denominator)
        full, rest = now + whole, backlog - whole * denominator
      end
      r[k], r[k + 1] = full, rest
      if rest > 0 then
        full = full + 1
      end
      if full > idle then
        idle = full
      end
      at, k = at + 6, k + 2
    elseif kind == 3 then
      -- A calendar period: end and count. The caller brought three boundaries.
      local max, stop_at, edge, count = p[at + 1], p[at + 3], r[k], r[k + 1]
      if now < p[at + 2] or now >= p[at + 4] then
        return nil
      end
      if now >= stop_at then
        stop_at = p[at + 4]
      end
      if edge ~= 0 and edge ~= stop_at then
        change, move = true, true
        if edge > stop_at then
          edge = stop_at
        else
          edge, count = 0, 0
        end
      end
      if cost > 0 then
        if cost > max or count > max - cost then
          conforms = false
        end
        move = move or edge == 0
        edge, count = stop_at, count + cost
      end
      r[k], r[k + 1] = edge, count
      if edge > idle then
        idle = edge
      end
      at, k = at + 5, k + 2
    elseif kind == 4 then
      -- A total: what was taken, for good.
      local max, count = p[at + 1], r[k]
      if cost > 0 then
        if cost > max or count > max - cost then
          conforms = false
        end
        move = move or count == 0
        count = count + cost
      end
      r[k] = count
      if count > 0 then
        idle = math.huge
      end
      at, k = at + 2, k + 1
    elseif kind == 5 then
      -- A number in the attempt, which the caller has compared.
      if p[at + 1] == 0 then
        conforms = false
      end
      at = at + 2
    else
      local fits, until_when, altered
      fits, until_when, altered, at, k = look(i, at, r, k, cost)
      conforms, change, move = conforms and fits, change or altered, true
      if until_when > idle then
        idle = until_when
      end
    end
  end
  idles[i], dirty[i], moved[i] = idle, change, move
  return conforms
end

-- Starts charge `i` over, with nothing taken.
local function start_over(i)
  local at, v, r = starts[i], vals[i], rows[i]
  if v then
    rows[i] = { struct.unpack(p[at + 2], v, #p[at + 1] + 1) }
  else
    for k = 1, #r do
      r[k] = 0
    end
  end
  if ops then
    ops[i] = nil
  end
  weigh(i, 0)
end

local allowed, conforming = true, {}
for i = 1, n do
  local conforms = weigh(i, cost)
  if conforms == nil then
    for j, a in pairs(adopted) do
      redis.call('SET', KEYS[j], a.new, 'KEEPTTL')
      for _, key in ipairs(a.gone) do
        redis.call('DEL', KEYS[key])
      end
    end
    return { now, -3 }
  end
  conforming[i] = conforms
  allowed = allowed and (conforms or p[starts[i] + 3] == 0)
end
-- In mode 5 this is a part of an attempt, and what is held elsewhere decides whether it is repeated.
local repeated = mode ~= 5 and holds > 0 and held == holds
surveying = false

local reply, taken = { now, 0 }, 0
local taking = allowed and not repeated and cost > 0 and mode ~= 0
for i = 1, n do
  if taking and conforming[i] then
    taken = taken + 2 ^ (i - 1)
    moved[i] = moved[i] or adopted[i]
    reply[i + 2] = #p[starts[i] + 2] > 0 and write(i) or ''
  elseif dirty[i] or adopted[i] then
    start_over(i)
    moved[i] = true
    reply[i + 2] = write(i)
  else
    reply[i + 2] = vals[i] or ''
  end
end
reply[2] = ((allowed or repeated) and 1 or 0) + (repeated and 2 or 0) + 4 * taken
