-- Append one batch of one writer to a run's log: number, store, publish, expire (contract section 3).
--
-- A batch without events renews: lease and times to live, and whether the log is still the one the writer knows.
--
-- KEYS  log, meta, questions, decisions, lease, checkpoint
-- ARGV  version, writer, number of the first event,
--       epochs the writer knows of this log, the newest first, separated by commas ('' before its first answer),
--       'joined' if the writer leaves the run's turns to its owner, else '',
--       'restores' if the writer was told that its log is lost, else '',
--       keep_open, keep_done, keep_interrupted, keep_stub (seconds), lease (milliseconds, '' for none),
--       max_entries, max_bytes, entries between two checkpoints,
--       channel, message_limit (bytes), publish command,
--       call key, position of its question, answer as JSON ('' each, unless the batch is a decision),
--       head of the log ('0-0' for none) if the batch ends a run that nobody holds, else '',
--       'deletes' if nothing but a stub is to be left, else '',
--       then type and JSON of each event
-- Reply {'ok', epoch, seq of the batch's first event ('' if no longer known), accepted, refused, status, changed,
--        indexes of events that were not this writer's to send (what else was refused came after the end),
--        1 if a checkpoint is due}
--       {'fenced', epoch, 'started' or 'resumed'} | {'lost'} | {'refused', epoch, status}
--       to a decision {'closed', status, position of the open question or ''} | {'absent'}
--       to an end of a run that nobody holds {'kept'}, if somebody does or the log went on
--       to a deletion {'absent'}
local log, meta, questions, decisions, lease, checkpoint = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local version, writer, first = ARGV[1], ARGV[2], tonumber(ARGV[3])
local joined, restores = ARGV[5] ~= '', ARGV[6] ~= ''
local keep_open, keep_done, keep_interrupted, keep_stub, lease_for = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local max_entries, max_bytes, checkpoint_every = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local channel, message_limit, publish = ARGV[15], tonumber(ARGV[16]), ARGV[17]
local decided, question, answer = ARGV[18], ARGV[19], ARGV[20]
local deserted, deletes = ARGV[21], ARGV[22] ~= ''
local HEAD = 22
local count = (#ARGV - HEAD) / 2
local MAX_WRITERS = 1000
local MAX_DECISIONS = 1000
local MAX_LINEAGE = 16

-- The turns of a run, which are its owner's.
local STATUS = {
  run_started = 'running', run_resumed = 'running', run_interrupted = 'interrupted',
  run_completed = 'completed', run_failed = 'failed', run_cancelled = 'cancelled',
}
local ENDED = { completed = true, failed = true, cancelled = true, deleted = true }
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
local function status_in(event)
  -- Who restores a run says these two first.
  local told = string.match(event, '"data":{"reason":"%a+","status":"(%a+)"')
  return (told == 'running' or told == 'interrupted') and told or nil
end

local held = redis.call(
  'HMGET', meta, 'epoch', 'seq', 'bytes', 'status', 'owner', 'former', 'started', 'writers', 'keep',
  'w:' .. writer, 'lineage', 'checkpoint'
)
local epoch, seq, bytes = tonumber(held[1]), tonumber(held[2]) or 0, tonumber(held[3]) or 0
local status, owner, former, started = held[4] or 'waiting', held[5], held[6], held[7]
local writers, keep, lineage, behind = tonumber(held[8]) or 0, held[9], held[11] or '', tonumber(held[12]) or 0
local alive = epoch and redis.call('EXISTS', log) == 1
-- One that comes once, for one purpose: it counts as no writer of the run.
local passing = decided ~= '' or deserted ~= '' or deletes

if decided ~= '' then
  if not epoch then return { 'absent' } end
  local open = alive and redis.call('HGET', questions, decided)
  if open ~= question then return { 'closed', status, open or '' } end
elseif deserted ~= '' then
  local head = alive and text(epoch) .. '-' .. text(seq) or '0-0'
  if head ~= deserted or ENDED[status] or status == 'interrupted' or redis.call('EXISTS', lease) == 1 then
    return { 'kept' }
  end
elseif deletes then
  if not epoch or status == 'deleted' then return { 'absent' } end
end

if held[10] == 'out' then return { 'fenced', text(epoch), 'resumed' } end
local last
if held[10] then
  local batch_seq, batch_count, batch_skipped
  last, batch_seq, batch_count, batch_skipped = string.match(held[10], '^(%d+) (%d+) (%d+) ?([%d,]*)$')
  last = tonumber(last)
  if count > 0 and last >= first + count - 1 then
    local latest = last == first + count - 1
    local taken = tonumber(batch_count)
    return { 'ok', text(epoch), latest and batch_seq or '', taken, count - taken, status, 0, batch_skipped, 0 }
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

-- What the writer knows against what stands here. Epochs only grow while Redis keeps its data: a smaller one is an old
-- file, a larger one another writer's start, or a log in which somebody goes on with what was lost.
local known = tonumber(string.match(ARGV[4], '^%d+'))
local older = known and epoch and epoch < known
local newer = known and epoch and epoch > known
if newer then
  local goes_on = not owner
  for one in string.gmatch(ARGV[4], '%d+') do
    goes_on = goes_on or string.find(',' .. lineage .. ',', ',' .. one .. ',', 1, true) ~= nil
  end
  if not goes_on then return { 'fenced', text(epoch), 'started' } end
  if ENDED[status] and not begins then return { 'refused', text(epoch), status } end
  if not (restores or begins) then return { 'lost' } end
end
local fresh = not alive or (restores and known and not newer)
if begins then
  if not known and former == writer then return { 'fenced', text(epoch), 'started' } end
  fresh = fresh or older or started or ENDED[status]
elseif restores then
  if ENDED[status] and not older then return { 'refused', text(epoch), status } end
else
  if older then return { 'lost' } end
  if ENDED[status] and not deletes then return { 'refused', text(epoch), status } end
  if first > 1 and (not alive or (last or 0) < first - 1) then return { 'lost' } end
  if epoch and not alive and not deletes then
    -- A stub: its owner, who is on the way to restore the run, holds the lease.
    if redis.call('EXISTS', lease) == 1 then return { 'lost' } end
    return { 'refused', text(epoch), status }
  end
  if not alive and not takes then return { 'refused', '0', status } end
end
if resumes and alive and owner ~= writer and status ~= 'interrupted' then
  return { 'fenced', text(epoch), 'resumed' }
end
local claims = restores and not (fresh or joined or passing)
if claims and owner and owner ~= writer and status ~= 'interrupted' then
  return { 'fenced', text(epoch), 'resumed' }
end

local before = status
local now = redis.call('TIME')
local millis = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
if fresh and not deletes then
  local previous = math.max(epoch or 0, known or 0)
  local continued, known_to = {}, ARGV[4] .. ',' .. (held[1] or '') .. ',' .. lineage
  for one in string.gmatch(restores and known_to or '', '%d+') do
    if #continued < MAX_LINEAGE then continued[#continued + 1] = one end
  end
  redis.call('DEL', log, meta, questions, decisions, lease, checkpoint)
  former = owner and owner ~= writer and owner or nil
  epoch, seq, bytes, status, owner, started, writers, last = math.max(millis, previous + 1), 0, 0, 'waiting', nil, nil, 0, nil
  keep, behind, lineage = nil, 0, table.concat(continued, ',')
  -- A new log is a change of status whatever the old one said.
  before = ''
end
if not last and not passing and count > 0 then
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
if (resumes or claims) and owner and owner ~= writer then
  -- Two owners would tell contradictory stories of the same calls: who was one is out, not merely joined.
  put('w:' .. owner, 'out')
end
if begins or resumes or claims or not (owner or joined or passing) then owner = writer end
local mine = owner == writer or deserted ~= '' or deletes

local function tell(envelope_text)
  -- An event that cjson can't read must not stop the script half-way: an entry without its meta blocks the run.
  local read, envelope = pcall(cjson.decode, envelope_text)
  local data = read and type(envelope) == 'table' and envelope.data
  if type(data) == 'table' and type(data.title) == 'string' then put('title', data.title) end
  started = text(millis)
  put('started', started)
end

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
        tell(event)
      elseif ENDED[status] then
        put('ended', text(millis))
        redis.call('DEL', questions)
      end
    elseif kind == 'run_restored' and mine and status_in(event) then
      status = status_in(event)
      if not started then tell(event) end
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

if deletes then
  -- The stub keeps what a late append is refused by, and nothing of what the run was about.
  redis.call('DEL', log, meta, questions, decisions, lease, checkpoint)
  redis.call('HSET', meta, 'v', version, 'epoch', text(epoch), 'seq', text(seq), 'status', 'deleted',
    'updated', text(millis), 'ended', text(millis))
  redis.call('EXPIRE', meta, keep_stub)
  return { 'ok', text(epoch), text(first_seq), accepted, count - accepted, 'deleted', 1, '', 0 }
end

-- Trimming follows the checkpoint; at twice the bound memory comes first.
local entries = redis.call('XLEN', log)
local most = max_entries
if bytes > 2 * max_bytes then most = math.min(most, math.floor(entries / 2)) end
if entries > 2 * max_entries or bytes > 2 * max_bytes then
  redis.call('XTRIM', log, 'MAXLEN', most)
  bytes = math.floor(bytes * most / entries)
end
local due = seq - behind >= checkpoint_every or entries > max_entries or bytes > max_bytes

if identified or begun then
  -- A call may begin unidentified, or be identified and never begin. The larger number is a hint for lists of runs;
  -- the fold knows exactly.
  identified = identified or tonumber(redis.call('HGET', meta, 'identified')) or 0
  begun = begun or tonumber(redis.call('HGET', meta, 'begun')) or 0
  put('calls', text(math.max(identified, begun)))
end
if mine and not passing or not keep then
  keep = keep_open .. ' ' .. keep_done .. ' ' .. keep_interrupted .. ' ' .. keep_stub
  put('keep', keep)
end
if ENDED[status] or status == 'interrupted' then
  redis.call('DEL', lease)
elseif mine and not passing then
  if lease_for == '' then
    redis.call('DEL', lease)
    redis.call('HDEL', meta, 'lease')
  else
    redis.call('SET', lease, writer, 'PX', lease_for)
    put('lease', lease_for)
  end
end
put('epoch', text(epoch))
put('seq', text(seq))
put('bytes', text(bytes))
put('status', status)
put('writers', text(writers))
if lineage ~= '' then put('lineage', lineage) end
if owner then put('owner', owner) end
if former then put('former', former) end
skipped = table.concat(skipped, ',')
if not passing and count > 0 then
  put('w:' .. writer, text(first + count - 1) .. ' ' .. text(first_seq) .. ' ' .. text(accepted) .. ' ' .. skipped)
end
redis.call('HSET', meta, unpack(set))
-- How long a run is kept is its owner's to say, also when others write to it.
local open_for, done_for, interrupted_for, stub_for = string.match(keep, '^(%d+) (%d+) (%d+) ?(%d*)$')
local seconds = ENDED[status] and done_for or status == 'interrupted' and interrupted_for or open_for
for _, key in ipairs({ log, questions, decisions, checkpoint }) do redis.call('EXPIRE', key, seconds) end
redis.call('EXPIRE', meta, seconds + (tonumber(stub_for) or 0))
return {
  'ok', text(epoch), text(first_seq), accepted, count - accepted, status, status ~= before and 1 or 0, skipped,
  due and 1 or 0,
}
