-- How many values of the request, and how many numbers of the row, each kind of limit has.
local SIZES = { 3, 6, 5, 2, 2, 4, 5, 4, 6 }
local NUMBERS = { 2, 2, 2, 1, 0, 3, 4, 3, 2 }

-- Calls `visit(kind, at, k)` for each limit of charge `i`: where it is in the request and in the row.
local function limits(i, visit)
  local at, k = starts[i] + 5, 1
  while at < starts[i] + p[starts[i]] do
    local kind = p[at]
    visit(kind, at, k)
    at, k = at + SIZES[kind], k + NUMBERS[kind]
  end
end

-- Writes charge `i` down after something was taken out of it. What has aged out meanwhile goes by
-- itself in a moment.
local function put(i)
  local blank = true
  for k = 1, #p[starts[i] + 2] do
    blank = blank and rows[i][k] == 0
  end
  moved[i] = true
  write(i, blank and 0 or 1)
end
