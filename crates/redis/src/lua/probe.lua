-- Shows that scripts run, that they may ask for the time, and that something can be written. KEYS[1] is
-- a key for that. Each of ARGV is a command, as a line of words, in which KEY stands for that key.
--
-- The answer is a greeting, what the server said instead of writing, and the numbers of the commands
-- that this user may not run.
redis.call('TIME')
local answer = {}
answer[1], answer[2] = 'tollgate', ''
local function may_run(line)
  local words = {}
  for word in string.gmatch(line, '%S+') do
    words[#words + 1] = word == 'KEY' and KEYS[1] or word
  end
  -- A command that was renamed away is an error here.
  local known, permitted = pcall(redis.acl_check_cmd, unpack(words))
  return known and permitted
end
for i = 1, #ARGV do
  if not may_run(ARGV[i]) then
    answer[#answer + 1] = i
  end
end
if may_run('SET KEY 1 PX 1000') then
  local written = redis.pcall('SET', KEYS[1], '1', 'PX', '1000')
  answer[2] = written.err or ''
end
return answer
