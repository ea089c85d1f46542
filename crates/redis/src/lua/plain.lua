-- Stands in for logs.lua where no charge has a log or holds.
local holds, held, surveying, look = 0, 0, true, nil
local function age_adopted() end
