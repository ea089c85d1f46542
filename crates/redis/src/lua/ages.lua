-- From when on each charge can be forgotten without a trace, as its row has it.
local SIZES = { 3, 6, 5, 2, 2, 4, 5, 4 }
local NUMBERS = { 2, 2, 2, 1, 0, 3, 4, 3 }

-- Calls `visit(kind, at, k)` for each limit of charge `i`: where it is in the request and in the row.
local function limits(i, visit)
  local at, k = starts[i] + 4, 1
  while at < starts[i] + p[starts[i]] do
    local kind = p[at]
    visit(kind, at, k)
    at, k = at + SIZES[kind], k + NUMBERS[kind]
  end
end

local function idle_of(i)
  local r, idle = rows[i], 0
  limits(i, function(kind, at, k)
    local ends = 0
    if kind == 1 and r[k] ~= 0 then
      ends = r[k] + p[at + 2]
    elseif kind == 2 then
      ends = r[k] + (r[k + 1] > 0 and 1 or 0)
    elseif kind == 3 then
      ends = r[k]
    elseif kind == 4 and r[k] > 0 then
      ends = math.huge
    elseif kind == 6 and r[k] > 0 then
      ends = r[k + 2] + p[at + 2]
    elseif kind == 7 and r[k] > 0 then
      ends = (r[k + 2] + 1) * p[at + 3] + p[at + 2]
    elseif kind == 8 and r[k] > 0 then
      ends = p[at + 2] > 0 and r[k + 2] + p[at + 2] or math.huge
    end
    idle = math.max(idle, ends)
  end)
  return idle
end

-- Writes charge `i` down after something was taken out of it. What has aged out meanwhile goes by
-- itself in a moment.
local function put(i)
  local blank = true
  for _, number in ipairs(rows[i]) do
    blank = blank and number == 0
  end
  idles[i], moved[i] = blank and 0 or math.max(idle_of(i), now + 1), true
  write(i)
end
