-- Ladders: failures in a list of `moment ticket count`, oldest first, of which the oldest may be several
-- in one under ticket 0. Their number and the moment of the last are among the numbers of the main key.

-- How long after the last of so many failures the next attempt may come. The steps are written
-- `failures pause`, lowest first.
local function pause_after(steps, failures)
  local pause = 0
  for from, span in string.gmatch(steps, '(%d+) (%d+)') do
    if tonumber(from) > failures then
      break
    end
    pause = tonumber(span)
  end
  return pause
end

-- Makes one entry of the oldest, so that with one more there are `most`.
local function merge(i, key, length, most)
  local excess = length + 1 - most
  if excess <= 0 then
    return
  end
  local sum, last, seen = 0, 0, 0
  for moment, count in walk(i, key, ENTRY) do
    sum, last, seen = sum + count, moment, seen + 1
    if seen > excess then
      break
    end
  end
  later(i, 'LTRIM', key, excess, -1)
  later(i, 'LSET', key, 0, string.format('%.0f %s %.0f', last, string.rep('0', 16), sum))
end

-- Brings a ladder to the present and fails `cost` times; answers whether that conforms, and whether the
-- present alone changed it. `r` has the number of failures and the last moment from `k` on.
local function climb(i, r, k, at, cost)
  local steps, forget, key, at_once, most = p[at + 1], p[at + 2], KEYS[p[at + 3]], p[at + 4], p[at + 5]
  local count, newest, altered, length = r[k], r[k + 1], false, 0
  if count > 0 and cost > 0 then
    length = size(i, 'LLEN', key)
    if length == 0 then
      -- An operator deleted the list alone: its failures are forgotten.
      count, newest, altered = 0, 0, true
    end
  end
  if count > 0 and newest > now then
    rebuild(i, key, ENTRY, now, function()
      return math.huge
    end)
    newest, altered = now, true
  elseif count > 0 and newest + forget <= now then
    later(i, 'DEL', key)
    count, newest, altered = 0, 0, true
  end
  local fits = true
  if cost > 0 then
    if count + cost > at_once then
      -- Of several at one moment each but the first comes right after a failure.
      fits = cost == 1 and newest + pause_after(steps, count) <= now
    end
    if count == 0 then
      later(i, 'DEL', key)
    elseif fits then
      -- A list that was just written anew ends now, so a full one does not fit.
      merge(i, key, length, most)
    end
    later(i, 'RPUSH', key, string.format('%.0f %s %.0f', now, ticket, cost))
    count, newest = count + cost, now
  end
  r[k], r[k + 1] = count, newest
  if altered or cost > 0 then
    expire(i, key, count > 0 and newest + forget or 0)
  end
  return fits, altered
end
