-- One limit with a log, slots, holds or a ladder, found at `at` in the request and at `k` in the row.
local function look(i, at, r, k, cost)
  local when, altered
  local kind, max = p[at], p[at + 1]
  if kind == 9 then
    local fits
    fits, altered = climb(i, r, k, at, cost)
    return fits, altered, at + 6, k + 2
  end
  if kind == 6 then
    local period = p[at + 2]
    when, altered = slide(i, r, k, KEYS[p[at + 3]], max, now, ENTRY, function(moment)
      return moment + period
    end, cost)
    at, k = at + 4, k + 3
  elseif kind == 7 then
    local period, slot = p[at + 2], p[at + 3]
    when, altered = slide(i, r, k, KEYS[p[at + 4]], max, math.floor(now / slot), SLOT, function(number)
      return (number + 1) * slot + period
    end, cost)
    at, k = at + 5, k + 4
  elseif kind == 8 then
    when, altered = hold(i, r, k, KEYS[p[at + 3]], max, p[at + 2], p[starts[i] + 4], cost)
    at, k = at + 4, k + 3
  else
    error('there is no limit of kind ' .. tostring(kind))
  end
  if surveying then
    whens[#whens + 1] = when
  end
  return when == 0, altered, at, k
end
