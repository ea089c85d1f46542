-- What the scripts about records begin with: the map of one namespace. KEYS: a hash, and a sorted set of
-- the entries that end. ARGV: the time (0: the server's), and how many changes the map remembers.
--
-- The hash holds each entry as `entry:NAME`, the `version`, and under `change:VERSION` the name of the
-- entry that changed with it.
local key, ends, kept = KEYS[1], KEYS[2], tonumber(ARGV[2])
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local now = tonumber(ARGV[1])
if now == 0 then
  now = clock
end
local version = tonumber(redis.call('HGET', key, 'version') or 0) or 0

-- Numbers a change.
local function note(name)
  version = version + 1
  redis.call('HSET', key, 'version', string.format('%.0f', version), string.format('change:%.0f', version), name)
  redis.call('HDEL', key, string.format('change:%.0f', version - kept))
end

-- The first command that this user may not run, of those that change the map. A script that is refused
-- half-way would leave the first half behind.
local function forbidden()
  for command, where in pairs({ HSET = key, HDEL = key, ZADD = ends, ZREM = ends }) do
    if not redis.acl_check_cmd(command, where) then
      return string.lower(command)
    end
  end
end

-- Removes entries that have ended, some at a time. A server that accepts no writes keeps them for now.
local function expire()
  local kind = redis.call('TYPE', ends).ok
  if kind ~= 'zset' and kind ~= 'none' then
    error({ err = 'DAMAGED 2' })
  end
  local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', string.format('%.0f', now), 'LIMIT', 0, 1000)
  -- Without a version there are no entries: another program deleted the hash.
  if #ended == 0 or version == 0 or forbidden() then
    return
  end
  if type(redis.pcall('HSET', key, 'version', string.format('%.0f', version))) == 'table' then
    return
  end
  for _, name in ipairs(ended) do
    redis.call('ZREM', ends, name)
    if redis.call('HDEL', key, 'entry:' .. name) == 1 then
      note(name)
    end
  end
end

local function size()
  return redis.call('HLEN', key) - math.min(version, kept) - math.min(version, 1)
end
