-- What is needed where an attempt is more than a few counts that grow.

-- Returns the charge whose numbers cannot be counts. Such numbers never conform and always look as if the
-- clock had gone back, so a caller that found neither need not call this.
local function impossible()
  for i = 1, n do
    local packing = p[starts[i] + 2]
    if vals[i] and #packing > 0 then
      local numbers = { struct.unpack(packing, vals[i], #p[starts[i] + 1] + 1) }
      if math.max(unpack(numbers, 1, #packing)) > 9007199254740991 then
        return i
      end
    end
  end
end

-- How something is written. Where nothing is taken, only what has aged is written down, and that the
-- server refuses to is no error.
local change = redis.call

-- Ends the script if this user may not run a command. To be asked before anything is written: a script
-- that is refused half-way leaves the first half behind.
local function insist(command, key, asked)
  if not asked[command] then
    asked[command] = true
    if not redis.acl_check_cmd(command, key) then
      error({ err = 'FORBIDDEN ' .. string.lower(command) })
    end
  end
end

-- Insists on every command by which the charges are written.
local function insist_on_writing()
  local asked = {}
  insist('SET', KEYS[1], asked)
  insist('SETRANGE', KEYS[1], asked)
  insist('DEL', KEYS[1], asked)
  for i = 1, n do
    for _, op in ipairs(ops and ops[i] or {}) do
      insist(op[1], op[2], asked)
    end
  end
end

-- Does what was put off for charge `i`.
local function catch_up(i)
  if ops and ops[i] then
    for _, op in ipairs(ops[i]) do
      change(unpack(op))
    end
    ops[i] = nil
  end
end

-- From when on charge `i` can be forgotten without a trace, as its row has it.
local function idle_of(i)
  local r, at, k, idle = rows[i], starts[i] + 7, 1, 0
  local stop = starts[i] + p[starts[i]]
  while at < stop do
    local kind, ends = p[at], 0
    if kind == 1 then
      ends = r[k] ~= 0 and r[k] + p[at + 2] or 0
      at, k = at + 3, k + 2
    elseif kind == 2 then
      ends = r[k] + (r[k + 1] > 0 and 1 or 0)
      at, k = at + 6, k + 2
    elseif kind == 3 then
      ends = r[k]
      at, k = at + 5, k + 2
    elseif kind == 4 then
      ends = r[k] > 0 and math.huge or 0
      at, k = at + 2, k + 1
    elseif kind == 5 then
      at = at + 2
    elseif kind == 6 then
      ends = r[k] > 0 and r[k + 2] + p[at + 2] or 0
      at, k = at + 4, k + 3
    elseif kind == 7 then
      ends = r[k] > 0 and (r[k + 2] + 1) * p[at + 3] + p[at + 2] or 0
      at, k = at + 5, k + 4
    elseif kind == 9 then
      ends = r[k] > 0 and r[k + 1] + p[at + 2] or 0
      at, k = at + 6, k + 2
    elseif kind == 8 then
      if r[k] > 0 then
        ends = p[at + 2] > 0 and r[k + 2] + p[at + 2] or math.huge
      end
      at, k = at + 4, k + 3
    else
      error('there is no limit of kind ' .. tostring(kind))
    end
    if ends > idle then
      idle = ends
    end
  end
  return idle
end

-- Gives the key of charge `i` back the expiry that it lost, after PERSIST or a restore without it. A user who may not
-- run this command loses nothing else by it.
local function expire_if_endless(i)
  local idle = idle_of(i)
  if idle > now and idle < math.huge then
    redis.pcall('PEXPIRE', KEYS[i], math.ceil((idle - now) / 1000) + slack, 'NX')
  end
end

-- Writes charge `i` down as its row has it, and answers its numbers. What has aged out by now is not
-- worth keeping, but for `least` microseconds.
local function write(i, least)
  local at = starts[i]
  local text, packing, idle, done = p[at + 1], p[at + 2], nil, nil
  local numbers = struct.pack(packing, unpack(rows[i], 1, #packing))
  if not moved[i] then
    -- It lives exactly as long as before.
    done = change('SETRANGE', KEYS[i], p[at + 3], numbers)
    expire_if_endless(i)
  else
    idle = math.max(idle_of(i), now + least)
    if idle == math.huge then
      done = change('SET', KEYS[i], text .. numbers)
    elseif idle > now then
      done = change('SET', KEYS[i], text .. numbers, 'PX', math.ceil((idle - now) / 1000) + slack)
    elseif vals[i] then
      done = change('DEL', KEYS[i])
    end
  end
  if type(done) == 'table' and done.err then
    -- Then what lies beside it stays as it is too.
    return numbers
  end
  catch_up(i)
  if adopted[i] then
    for _, key in ipairs(adopted[i].gone) do
      change('DEL', KEYS[key])
    end
  end
  return numbers
end
