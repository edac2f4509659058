-- Append one batch of one writer to a run's log: number, store, publish, expire (contract section 3).
--
-- KEYS  log, meta
-- ARGV  version, writer, number of the first event, epoch the writer knows ('' before its first answer),
--       keep_open, keep_done, keep_interrupted (seconds), max_entries, max_bytes,
--       channel, message_limit (bytes), publish command, then type and JSON of each event
-- Reply {'ok', epoch, seq of the batch's first event ('' if no longer known), accepted, refused, status, changed}
--       {'fenced', epoch} | {'lost'} | {'refused', epoch, status}
local log, meta = KEYS[1], KEYS[2]
local version, writer, first, known = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local keep_open, keep_done, keep_interrupted = ARGV[5], ARGV[6], ARGV[7]
local max_entries, max_bytes = tonumber(ARGV[8]), tonumber(ARGV[9])
local channel, message_limit, publish = ARGV[10], tonumber(ARGV[11]), ARGV[12]
local HEAD = 12
local count = (#ARGV - HEAD) / 2
local MAX_WRITERS = 1000

local STATUS = {
  run_started = 'running', run_resumed = 'running', run_interrupted = 'interrupted',
  run_completed = 'completed', run_failed = 'failed', run_cancelled = 'cancelled',
}
local ENDED = { completed = true, failed = true, cancelled = true }

local function text(number) return string.format('%.0f', number) end

local held = redis.call('HMGET', meta, 'epoch', 'seq', 'bytes', 'status', 'owner', 'former', 'started', 'writers', 'w:' .. writer)
local epoch, seq, bytes = tonumber(held[1]), tonumber(held[2]) or 0, tonumber(held[3]) or 0
local status, owner, former, started = held[4] or 'waiting', held[5], held[6], held[7]
local writers = tonumber(held[8]) or 0
local alive = epoch and redis.call('EXISTS', log) == 1
local last, batch_seq, batch_count
if held[9] then
  last, batch_seq, batch_count = string.match(held[9], '^(%d+) (%d+) (%d+)$')
  last = tonumber(last)
end

if known and epoch and known ~= epoch then
  -- Epochs only grow while Redis keeps its data: a smaller one is an old file, a larger one another writer's start.
  if epoch < known then return { 'lost' } end
  return { 'fenced', text(epoch) }
end
if last and last >= first + count - 1 then
  local latest = last == first + count - 1
  return { 'ok', text(epoch), latest and batch_seq or '', tonumber(batch_count), count - tonumber(batch_count), status, 0 }
end

local begins = ARGV[HEAD + 1] == 'run_started'
for i = 2, count do
  if ARGV[HEAD + 2 * i - 1] == 'run_started' then
    return redis.error_reply('BATCH run_started must be the first event of its batch')
  end
end
if begins and not known and former == writer then
  return { 'fenced', text(epoch) }
end
if not begins then
  if ENDED[status] then return { 'refused', text(epoch), status } end
  if first > 1 and (not alive or (last or 0) < first - 1) then return { 'lost' } end
  if epoch and not alive then return { 'lost' } end
end

local before = status
local now = redis.call('TIME')
local millis = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
if not alive or (begins and started) then
  local previous = math.max(epoch or 0, known or 0)
  redis.call('DEL', log, meta)
  former = owner and owner ~= writer and owner or nil
  epoch, seq, bytes, status, owner, started, writers, last = math.max(millis, previous + 1), 0, 0, 'waiting', nil, nil, 0, nil
  -- A new log is a change of status whatever the old one said.
  before = ''
end
if not last then
  writers = writers + 1
  if writers > MAX_WRITERS then
    return redis.error_reply('WRITERS this run has had ' .. MAX_WRITERS .. ' writers: share one publisher a process')
  end
end

local set = { 'v', version, 'updated', text(millis) }
local function put(name, value)
  set[#set + 1] = name
  set[#set + 1] = value
end
local first_seq, accepted = seq + 1, 0
local identified, begun
for i = 1, count do
  local kind, event = ARGV[HEAD + 2 * i - 1], ARGV[HEAD + 2 * i]
  if not ENDED[status] then
    accepted, seq, bytes = accepted + 1, seq + 1, bytes + #event
    local position = text(epoch) .. '-' .. text(seq)
    redis.call('XADD', log, position, 'type', kind, 'event', event)
    local message = position .. ' ' .. kind
    if #event <= message_limit then message = message .. ' ' .. event end
    redis.call(publish, channel, message)
    if STATUS[kind] then
      status = STATUS[kind]
      if kind == 'run_started' then
        owner, started = writer, text(millis)
        put('started', started)
        -- An event that cjson can't read must not stop the script half-way: an entry without its meta blocks the run.
        local read, envelope = pcall(cjson.decode, event)
        local data = read and type(envelope) == 'table' and envelope.data
        if type(data) == 'table' and type(data.title) == 'string' then put('title', data.title) end
      elseif kind == 'run_resumed' then
        owner = writer
      elseif ENDED[status] then
        put('ended', text(millis))
      end
    elseif kind == 'tool_call_identified' then
      identified = redis.call('HINCRBY', meta, 'identified', 1)
    elseif kind == 'tool_execution_started' and string.find(event, '"attempt":1[,}]') then
      begun = redis.call('HINCRBY', meta, 'begun', 1)
    end
  end
end

-- Trimming follows the checkpoint; at twice the bound memory comes first.
local entries = redis.call('XLEN', log)
local most = max_entries
if bytes > 2 * max_bytes then most = math.min(most, math.floor(entries / 2)) end
if entries > 2 * max_entries or bytes > 2 * max_bytes then
  redis.call('XTRIM', log, 'MAXLEN', most)
  bytes = math.floor(bytes * most / entries)
end

if identified or begun then
  -- A call may begin unidentified, or be identified and never begin. The larger number is a hint for lists of runs;
  -- the fold knows exactly.
  identified = identified or tonumber(redis.call('HGET', meta, 'identified')) or 0
  begun = begun or tonumber(redis.call('HGET', meta, 'begun')) or 0
  put('calls', text(math.max(identified, begun)))
end
put('epoch', text(epoch))
put('seq', text(seq))
put('bytes', text(bytes))
put('status', status)
put('writers', text(writers))
if owner then put('owner', owner) end
if former then put('former', former) end
put('w:' .. writer, text(first + count - 1) .. ' ' .. text(first_seq) .. ' ' .. text(accepted))
redis.call('HSET', meta, unpack(set))
local keep = ENDED[status] and keep_done or status == 'interrupted' and keep_interrupted or keep_open
redis.call('EXPIRE', log, keep)
redis.call('EXPIRE', meta, keep)
return { 'ok', text(epoch), text(first_seq), accepted, count - accepted, status, status ~= before and 1 or 0 }
