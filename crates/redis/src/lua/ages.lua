-- How many values of the request, and how many numbers of the row, each kind of limit has.
local SIZES = { 3, 6, 5, 2, 2, 4, 5, 4, 6 }
local NUMBERS = { 2, 2, 2, 1, 0, 3, 4, 3, 2 }

-- Calls `visit(kind, at, k)` for each limit of charge `i`: where it is in the request and in the row.
local function limits(i, visit)
  local at, k = starts[i] + 7, 1
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

-- Up to how many holds are read to know the last renewal again after one was ended. Of more it is known
-- only that none was later.
local FEW = 64

-- Ends these holds. The others are not read where they are many.
local function end_holds(i, r, k, key, read, ended)
  local names, last, left = {}, false, 0
  for name, one in pairs(ended) do
    names[#names + 1] = name
    r[k] = math.max(0, r[k] - one.weight)
    last = last or one.renewed == r[k + 2]
    if read then
      read[name] = nil
    end
  end
  if read then
    for _ in pairs(read) do
      left = left + 1
    end
  else
    left = size(i, 'HLEN', key) - #names
  end
  if left <= 0 or (last and left <= FEW) then
    read = read or read_holds(i, key)
    for _, name in ipairs(names) do
      read[name] = nil
    end
    r[k], r[k + 1], r[k + 2] = count_holds(read)
  end
  later_many(i, 'HDEL', key, names)
end
