-- How long each log and each set of holds asks to wait, behind everything else.
for k = 1, #whens do
  reply[n + 2 + k] = whens[k]
end
return reply
