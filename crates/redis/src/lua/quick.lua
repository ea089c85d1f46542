-- The common case in a few lines: all conform, and each counter only grows and lives as long as before.
if quick and not stale then
  local reply, taken, bit = { now, 0, nil, nil, nil, nil, nil, nil }, 0, 1
  for i = 1, n do
    local at, r = starts[i], rows[i]
    local numbers = ''
    if #p[at + 2] > 0 then
      numbers = pack_numbers(p[at + 2], unpack(r))
      call('SETRANGE', KEYS[i], p[at + 3], numbers)
    end
    reply[i + 2] = numbers
    taken, bit = taken + bit, bit + bit
  end
  -- One key is enough for each attempt: in time all have their turn.
  expire_if_endless(now % n + 1)
  reply[2] = 1 + 4 * taken
  return reply
end
