-- Store the fold of a run's log up to a position, and trim what stands behind it (contract section 3).
--
-- KEYS  log, meta, checkpoint
-- ARGV  epoch, seq of the checkpoint this one follows (0: none), its own seq, the checkpoint's JSON,
--       max_entries, max_bytes
-- Reply 1, or 0 if somebody was first or the log is another one by now: then nothing was done
local log, meta, checkpoint = KEYS[1], KEYS[2], KEYS[3]
local follows, upto = tonumber(ARGV[2]), tonumber(ARGV[3])
local max_entries, max_bytes = tonumber(ARGV[5]), tonumber(ARGV[6])
-- A little more than is needed goes at once, so that a log at its bound isn't trimmed with every event.
local SPARE = 0.9
local PAGE = 100

local held = redis.call('HMGET', meta, 'epoch', 'checkpoint', 'seq', 'bytes')
local seq, bytes = tonumber(held[3]), tonumber(held[4]) or 0
local left = redis.call('PTTL', log)
if held[1] ~= ARGV[1] or (tonumber(held[2]) or 0) ~= follows or left < 0 or upto > seq then return 0 end
redis.call('SET', checkpoint, ARGV[4], 'PX', left)
redis.call('HSET', meta, 'checkpoint', ARGV[3])

local entries = redis.call('XLEN', log)
if entries <= max_entries and bytes <= max_bytes then return 1 end
-- The head stays, whatever its size: it says where the log stands.
local last, trimmed, from = math.min(upto, seq - 1), nil, '-'
while entries > max_entries * SPARE or bytes > max_bytes * SPARE do
  local page = redis.call('XRANGE', log, from, '+', 'COUNT', PAGE)
  if #page == 0 then break end
  for _, entry in ipairs(page) do
    local at = tonumber(string.match(entry[1], '%-(%d+)$'))
    if at > last or entries <= max_entries * SPARE and bytes <= max_bytes * SPARE then
      page = nil
      break
    end
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'event' then bytes = bytes - #entry[2][i + 1] end
    end
    entries, trimmed, from = entries - 1, at, '(' .. entry[1]
  end
  if not page then break end
end
if trimmed then
  redis.call('XTRIM', log, 'MINID', ARGV[1] .. '-' .. string.format('%.0f', trimmed + 1))
  redis.call('HSET', meta, 'bytes', string.format('%.0f', math.max(bytes, 0)))
end
return 1
