-- Changes entries of a namespace. Further ARGV: until when it may (0: whenever), how many entries there may
-- be, after how many milliseconds without a change the server may forget the namespace (0: never), and then
-- for each edit the name, what is expected (`*` anything, `-` no entry, `=` and the bytes),
-- when the entry ends (0: never, `-`: remove it), and the bytes.
--
-- The answer is the server's time, and the version or -1 if it came too late or -2 if there is no room;
-- then 1 for each edit whose condition held, or 0.
local deadline, most, idle = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if deadline ~= 0 and clock > deadline then
  return { clock, -1 }
end
local missing = forbidden()
if missing then
  return redis.error_reply('FORBIDDEN ' .. missing)
end
expire()
local room = most - size()
if room < (#ARGV - 5) / 4 then
  for i = 6, #ARGV, 4 do
    if ARGV[i + 2] ~= '-' and not redis.call('HGET', key, 'entry:' .. ARGV[i]) then
      room = room - 1
    end
  end
  if room < 0 then
    return { clock, -2 }
  end
end
local answer = { clock, 0 }
for i = 6, #ARGV, 4 do
  local name, expected, till, bytes = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local entry = 'entry:' .. name
  local there = redis.call('HGET', key, entry)
  local held = expected == '*' or expected == (there and '=' .. there or '-')
  answer[#answer + 1] = held and 1 or 0
  if held and (there or till ~= '-') then
    if till == '-' then
      redis.call('HDEL', key, entry)
    else
      redis.call('HSET', key, entry, bytes)
    end
    if till == '-' or till == '0' then
      redis.call('ZREM', ends, name)
    else
      redis.call('ZADD', ends, till, name)
    end
    note(name)
  end
end
if idle > 0 then
  -- A user that may not run it has records that stay.
  redis.pcall('PEXPIRE', key, idle)
  redis.pcall('PEXPIRE', ends, idle)
end
answer[2] = version
return answer
