-- Reads a part of a hash. ARGV: where the last part ended (0: at the beginning), how many fields to look
-- at, and how many bytes the values may have together.
--
-- The answer is where this part ends (0: at the end), and then names and values in turn. A value that
-- there is no room for is missing: it is asked for by its name.
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer, left = { found[1] }, tonumber(ARGV[3])
for i = 1, #found[2], 2 do
  local name, value = found[2][i], found[2][i + 1]
  left = left - #name - #value
  answer[#answer + 1] = name
  answer[#answer + 1] = left >= 0 and value
end
return answer
