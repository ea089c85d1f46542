-- Takes every charge if all enforced ones conform, or none.

-- Forgets what was worked out for charge `i`.
local function reread(i)
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
end

-- Starts charge `i` over, with nothing taken.
local function start_over(i)
  reread(i)
  weigh(i, 0)
  moved[i] = true
end

if stale then
  change = redis.pcall
  for j in pairs(adopted) do
    reread(j)
    age_adopted(j)
    moved[j] = true
    write(j, 1)
  end
  return { now, -3 }
end
if changed or not conform or mode == 0 or ops then
  local i = impossible()
  if i then
    return { now, -4, i, 'garbage' }
  end
end
-- In mode 5 this is a part of an attempt, and what is held elsewhere decides whether it is repeated.
local repeated = mode ~= 5 and holds > 0 and held == holds
surveying = false

local reply, taken, bit = { now, 0 }, 0, 1
local taking = allowed and not repeated and takes and mode ~= 0
if not taking then
  change = redis.pcall
elseif n > 1 or ops then
  insist_on_writing()
end
for i = 1, n do
  if taking and conforming[i] and p[starts[i] + 5] > 0 then
    taken = taken + bit
    if adopted[i] then
      moved[i] = true
    end
    reply[i + 2] = #rows[i] > 0 and write(i, 0) or ''
  elseif dirty[i] or adopted[i] then
    start_over(i)
    reply[i + 2] = write(i, 0)
  else
    reply[i + 2] = vals[i] and string.sub(vals[i], #p[starts[i] + 1] + 1) or ''
  end
  bit = bit * 2
end
reply[2] = ((allowed or repeated) and 1 or 0) + (repeated and 2 or 0) + 4 * taken
