-- Finds out whether every charge conforms.

-- Brings charge `i` to the present and takes `cost` of it; answers whether that conforms, or nothing if
-- the calendar does not cover the time. Notes whether the present alone changed it, and whether it
-- lives for another time than before.
local function weigh(i, cost)
  local p, now, r, at, k = p, now, rows[i], starts[i] + 7, 1
  local stop = starts[i] + p[starts[i]]
  local conforms, change, move = true, false, false
  while at < stop do
    local kind = p[at]
    if kind == 1 then
      -- A window: start and count.
      local edge, count = r[k], r[k + 1]
      if edge > now then
        edge, change, move = now, true, true
        r[k] = now
      end
      if now >= edge + p[at + 2] then
        if edge ~= 0 or count ~= 0 then
          change = true
        end
        count, move = 0, true
        edge = cost > 0 and now or 0
        r[k], r[k + 1] = edge, 0
      end
      if cost > 0 then
        count = count + cost
        if count > p[at + 1] then
          conforms = false
        end
        r[k + 1] = count
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
      elseif full ~= 0 or rest ~= 0 then
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
      at, k = at + 6, k + 2
    elseif kind == 3 then
      -- A calendar period: end and count. The caller brought three boundaries.
      local ends, edge, count = p[at + 3], r[k], r[k + 1]
      if now < p[at + 2] or now >= p[at + 4] then
        return nil
      end
      if now >= ends then
        ends = p[at + 4]
      end
      if edge ~= 0 and edge ~= ends then
        change, move = true, true
        if edge > ends then
          edge = ends
        else
          edge, count = 0, 0
        end
      end
      if cost > 0 then
        move = move or edge == 0
        edge, count = ends, count + cost
        if count > p[at + 1] then
          conforms = false
        end
      end
      r[k], r[k + 1] = edge, count
      at, k = at + 5, k + 2
    elseif kind == 4 then
      -- A total: what was taken, for good.
      if cost > 0 then
        local count = r[k] + cost
        if count > p[at + 1] then
          conforms = false
        end
        move = move or r[k] == 0
        r[k] = count
      end
      at, k = at + 2, k + 1
    elseif kind == 5 then
      -- A number in the attempt, which the caller has compared.
      if p[at + 1] == 0 then
        conforms = false
      end
      at = at + 2
    else
      local fits, altered
      fits, altered, at, k = look(i, at, r, k, cost)
      conforms, change, move = conforms and fits, change or altered, true
    end
  end
  dirty[i], moved[i] = change, move
  return conforms
end

local allowed, conform, conforming, changed, stale, quick = true, true, { nil, nil, nil, nil, nil, nil, nil, nil }, false, false, mode ~= 0
for i = 1, n do
  local cost = p[starts[i] + 5]
  local conforms = weigh(i, cost)
  if conforms == nil then
    stale = true
    break
  end
  conforming[i], changed = conforms, changed or dirty[i]
  conform = conform and conforms
  allowed = allowed and (conforms or p[starts[i] + 4] == 0)
  quick = quick and cost > 0 and conforms and not moved[i] and not adopted[i]
end
