-- Append one batch of one writer to a run's log: number, store, publish, expire (contract section 3).
--
-- KEYS  log, meta, questions, decisions
-- ARGV  version, writer, number of the first event, epoch the writer knows ('' before its first answer),
--       'joined' if the writer leaves the run's turns to its owner, else '',
--       keep_open, keep_done, keep_interrupted (seconds), max_entries, max_bytes,
--       channel, message_limit (bytes), publish command,
--       call key, position of its question, answer as JSON ('' each, unless the batch is a decision),
--       then type and JSON of each event
-- Reply {'ok', epoch, seq of the batch's first event ('' if no longer known), accepted, refused, status, changed,
--        indexes of events that were not this writer's to send}: what else was refused came after the end
--       {'fenced', epoch, 'started' or 'resumed'} | {'lost'} | {'refused', epoch, status}
--       and to a decision {'closed', status, position of the open question or ''} | {'absent'}
local log, meta, questions, decisions = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local version, writer, first, known = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local joined = ARGV[5] ~= ''
local keep_open, keep_done, keep_interrupted = ARGV[6], ARGV[7], ARGV[8]
local max_entries, max_bytes = tonumber(ARGV[9]), tonumber(ARGV[10])
local channel, message_limit, publish = ARGV[11], tonumber(ARGV[12]), ARGV[13]
local decided, question, answer = ARGV[14], ARGV[15], ARGV[16]
local HEAD = 16
local count = (#ARGV - HEAD) / 2
local MAX_WRITERS = 1000
local MAX_DECISIONS = 1000

-- The turns of a run, which are its owner's.
local STATUS = {
  run_started = 'running', run_resumed = 'running', run_interrupted = 'interrupted',
  run_completed = 'completed', run_failed = 'failed', run_cancelled = 'cancelled',
}
local ENDED = { completed = true, failed = true, cancelled = true }
-- After these steps nobody waits for an answer about the call any more.
local SETTLES = {
  tool_decision = true, tool_execution_started = true, tool_execution_completed = true, tool_execution_failed = true,
}

local function text(number) return string.format('%.0f', number) end
local function kind_of(i) return ARGV[HEAD + 2 * i - 1] end
local function call_of(event)
  -- The envelope's call stands before its data, and a key needs no escapes.
  return string.match(event, '"call":{"key":"([%w_.:~-]+)"')
end

local held = redis.call(
  'HMGET', meta, 'epoch', 'seq', 'bytes', 'status', 'owner', 'former', 'started', 'writers', 'keep', 'w:' .. writer
)
local epoch, seq, bytes = tonumber(held[1]), tonumber(held[2]) or 0, tonumber(held[3]) or 0
local status, owner, former, started = held[4] or 'waiting', held[5], held[6], held[7]
local writers, keep = tonumber(held[8]) or 0, held[9]
local alive = epoch and redis.call('EXISTS', log) == 1

if decided ~= '' then
  if not epoch then return { 'absent' } end
  local open = alive and redis.call('HGET', questions, decided)
  if open ~= question then return { 'closed', status, open or '' } end
end

if held[10] == 'out' then return { 'fenced', text(epoch), 'resumed' } end
if known and epoch and known ~= epoch then
  -- Epochs only grow while Redis keeps its data: a smaller one is an old file, a larger one another writer's start.
  if epoch < known then return { 'lost' } end
  return { 'fenced', text(epoch), 'started' }
end
local last
if held[10] then
  local batch_seq, batch_count, batch_skipped
  last, batch_seq, batch_count, batch_skipped = string.match(held[10], '^(%d+) (%d+) (%d+) ?([%d,]*)$')
  last = tonumber(last)
  if last >= first + count - 1 then
    local latest = last == first + count - 1
    local taken = tonumber(batch_count)
    return { 'ok', text(epoch), latest and batch_seq or '', taken, count - taken, status, 0, batch_skipped }
  end
end

local begins = kind_of(1) == 'run_started' and not joined
local resumes = kind_of(1) == 'run_resumed' and not joined
local takes = false
for i = 1, count do
  local kind = kind_of(i)
  if i > 1 and (kind == 'run_started' or kind == 'run_resumed') then
    return redis.error_reply('BATCH ' .. kind .. ' must be the first event of its batch')
  end
  takes = takes or not (joined and STATUS[kind])
end
if begins and not known and former == writer then
  return { 'fenced', text(epoch), 'started' }
end
if not begins then
  if ENDED[status] then return { 'refused', text(epoch), status } end
  if first > 1 and (not alive or (last or 0) < first - 1) then return { 'lost' } end
  if epoch and not alive then return { 'lost' } end
  if not alive and not takes then return { 'refused', '0', status } end
end
if resumes and alive and owner ~= writer and status ~= 'interrupted' then
  return { 'fenced', text(epoch), 'resumed' }
end

local before = status
local now = redis.call('TIME')
local millis = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
if not alive or (begins and (started or ENDED[status])) then
  local previous = math.max(epoch or 0, known or 0)
  redis.call('DEL', log, meta, questions, decisions)
  former = owner and owner ~= writer and owner or nil
  epoch, seq, bytes, status, owner, started, writers, last = math.max(millis, previous + 1), 0, 0, 'waiting', nil, nil, 0, nil
  keep = nil
  -- A new log is a change of status whatever the old one said.
  before = ''
end
if not last and decided == '' then
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
if resumes and owner and owner ~= writer then
  -- Two owners would tell contradictory stories of the same calls: who was one is out, not merely joined.
  put('w:' .. owner, 'out')
end
if begins or resumes or not (owner or joined or decided ~= '') then owner = writer end
local mine = owner == writer

local first_seq, accepted, skipped = seq + 1, 0, {}
local asking = redis.call('EXISTS', questions) == 1
local identified, begun
for i = 1, count do
  local kind, event = kind_of(i), ARGV[HEAD + 2 * i]
  if ENDED[status] then break end
  if STATUS[kind] and not mine or kind == 'run_resumed' and status == 'running' then
    skipped[#skipped + 1] = i - 1
  else
    accepted, seq, bytes = accepted + 1, seq + 1, bytes + #event
    local position = text(epoch) .. '-' .. text(seq)
    redis.call('XADD', log, position, 'type', kind, 'event', event)
    local message = position .. ' ' .. kind
    if #event <= message_limit then message = message .. ' ' .. event end
    redis.call(publish, channel, message)
    if STATUS[kind] then
      status = STATUS[kind]
      if kind == 'run_started' then
        started = text(millis)
        put('started', started)
        -- An event that cjson can't read must not stop the script half-way: an entry without its meta blocks the run.
        local read, envelope = pcall(cjson.decode, event)
        local data = read and type(envelope) == 'table' and envelope.data
        if type(data) == 'table' and type(data.title) == 'string' then put('title', data.title) end
      elseif ENDED[status] then
        put('ended', text(millis))
        redis.call('DEL', questions)
      end
    elseif kind == 'tool_call_identified' then
      identified = redis.call('HINCRBY', meta, 'identified', 1)
    elseif kind == 'tool_execution_started' and string.find(event, '"attempt":1[,}]') then
      begun = redis.call('HINCRBY', meta, 'begun', 1)
    end
    if kind == 'tool_interrupted' and call_of(event) then
      redis.call('HSET', questions, call_of(event), position)
      asking = true
    elseif asking and SETTLES[kind] and call_of(event) then
      redis.call('HDEL', questions, call_of(event))
    end
    if decided ~= '' then
      redis.call('XADD', decisions, 'MAXLEN', MAX_DECISIONS, position,
        'question', question, 'call', decided, 'writer', writer, 'answer', answer)
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
if mine or not keep then
  keep = keep_open .. ' ' .. keep_done .. ' ' .. keep_interrupted
  put('keep', keep)
end
put('epoch', text(epoch))
put('seq', text(seq))
put('bytes', text(bytes))
put('status', status)
put('writers', text(writers))
if owner then put('owner', owner) end
if former then put('former', former) end
skipped = table.concat(skipped, ',')
if decided == '' then
  put('w:' .. writer, text(first + count - 1) .. ' ' .. text(first_seq) .. ' ' .. text(accepted) .. ' ' .. skipped)
end
redis.call('HSET', meta, unpack(set))
-- How long a run is kept is its owner's to say, also when others write to it.
local open_for, done_for, interrupted_for = string.match(keep, '^(%d+) (%d+) (%d+)$')
local seconds = ENDED[status] and done_for or status == 'interrupted' and interrupted_for or open_for
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, seconds) end
return {
  'ok', text(epoch), text(first_seq), accepted, count - accepted, status, status ~= before and 1 or 0, skipped,
}
