// @ts-check
/**
 * Events in, RunState out: what a page needs to draw a run (contract §5). Pure: no clock, no network, no DOM.
 *
 * The same function stands in Python in `listeners/contract/fold.py`; `tests/vectors` holds both to the same
 * answers. Nothing inside `data` is trusted: a member of the wrong type counts as absent. States are shared and
 * copied on write: treat them as read-only, compare them by identity.
 */

/**
 * @typedef {'waiting' | 'running' | 'interrupted' | 'completed' | 'failed' | 'cancelled'} RunStatus
 * @typedef {'identified' | 'running' | 'interrupted' | 'completed' | 'failed' | 'denied' | 'cancelled'} CallStatus
 *
 * @typedef {object} Progress          the last `tool_progress`, without `chunk`
 * @property {number} [progress]
 * @property {number} [total]
 * @property {string} [message]
 *
 * @typedef {object} Question          the open question of a held call
 * @property {string} position         what a decision names it by
 * @property {string} message
 * @property {any} [arguments]
 * @property {boolean} [editable]      false: the arguments were cut or redacted
 * @property {any} [interrupt]
 *
 * @typedef {object} Call
 * @property {string} key              unique in its run, never changes
 * @property {string} [id]             the provider's id
 * @property {string} name
 * @property {string} title            what to show now
 * @property {number} [index]
 * @property {string} [parent]         key of the call that started the nested agent
 * @property {number} attempt          1, then +1 whenever it is started again
 * @property {CallStatus} state
 * @property {any} [arguments]
 * @property {string} [arguments_summary]
 * @property {Progress & Record<string, any>} [progress]
 * @property {any} [result]
 * @property {string} [result_summary]
 * @property {{message: string, reason: string}} [error]
 * @property {Question} [interrupt]
 * @property {string} [identified_at]  times are RFC 3339 in UTC
 * @property {string} [started_at]
 * @property {string} [ended_at]
 * @property {number} [duration_ms]    from the agent's own clock
 * @property {true} [truncated]        arguments and result were left out for their size
 *
 * @typedef {object} RunState
 * @property {string} run
 * @property {string} position         `<epoch>-<seq>` of the last event folded; `0-0` before the first
 * @property {RunStatus} status
 * @property {string} [title]
 * @property {string} [agent]
 * @property {string} [thread]
 * @property {string} [started_at]
 * @property {string} [ended_at]
 * @property {any} [result]
 * @property {{code: string, message: string}} [error]
 * @property {{input: number, output: number, total: number}} [usage]
 * @property {{key: string, message: string, data?: any}[]} [interrupts]
 * @property {Call[]} calls            in order of first appearance
 * @property {number} [calls_dropped]
 *
 * @typedef {object} RunEvent          the envelope of contract §2
 * @property {string} type
 * @property {string} run
 * @property {string} time
 * @property {{key: string, id?: string, name?: string, title?: string, index?: number, attempt?: number}} [call]
 * @property {string} [agent]
 * @property {string} [thread]
 * @property {string} [parent]
 * @property {string} [trace]
 * @property {boolean} [truncated]
 * @property {Record<string, any>} [data]
 */

/** Calls a state holds; beyond that the oldest ended ones go first. */
export const MAX_CALLS = 2000
/** The position of a state that stands for no log. */
export const NOWHERE = '0-0'

const POSITION = /^(0|[1-9]\d{0,19})-(0|[1-9]\d{0,19})$/
const LARGEST_INT = Number.MAX_SAFE_INTEGER
const RUN_STATUSES = ['waiting', 'running', 'interrupted', 'completed', 'failed', 'cancelled']
const CALL_STATUSES = ['identified', 'running', 'interrupted', 'completed', 'failed', 'denied', 'cancelled']

/** The state of a run of which nothing is known yet.
 * @param {string} run
 * @returns {RunState} */
export const waiting = (run) => ({ run, position: NOWHERE, status: 'waiting', calls: [] })

/** Whether a call has not ended.
 * @param {Call} call */
export const isOpen = ({ state }) => state === 'identified' || state === 'running' || state === 'interrupted'

/** Whether the run is over.
 * @param {RunState} state */
export const isEnded = ({ status }) => status === 'completed' || status === 'failed' || status === 'cancelled'

/**
 * The state after `event`, which stands at `position`. The same object comes back when the event is a repeat, or of
 * another epoch without beginning it. A snapshot always replaces the state, since a log may have gone back.
 * @param {RunState} state
 * @param {string} position
 * @param {RunEvent} event
 * @returns {RunState}
 */
export function fold(state, position, event) {
  const place = POSITION.exec(position)
  if (!place || !isObject(event)) return state
  const data = isObject(event.data) ? event.data : {}
  if (event.type === 'snapshot') {
    state = readState(state.run, position, data)
    return isEnded(state) ? { ...state, calls: closed(state.calls, state.ended_at) } : state
  }
  if (state.position === NOWHERE) {
    // Nothing, or a snapshot that stands for no log: whatever comes is the first we know of its epoch.
    state = waiting(state.run)
  } else {
    const [epoch, seq] = state.position.split('-')
    if (place[1] !== epoch) {
      if (event.type !== 'run_started' && event.type !== 'run_restored') return state
      state = waiting(state.run)
    } else if (!isBeyond(place[2], seq)) return state
  }

  /** @type {Changes} */
  const changes = { position }
  if (!isEnded(state)) {
    const time = text(event.time) ?? ''
    if (state.status === 'waiting') {
      changes.status = 'running'
      changes.started_at = time
    }
    const step = CALL_STEPS.get(event.type)
    if (step) {
      if (isObject(event.call) && typeof event.call.key === 'string') {
        Object.assign(changes, withStep(state, { event, data, time, position, step }))
      }
    } else Object.assign(changes, RUN_TURNS.get(event.type)?.(state, { event, data, time }))
  }
  return changed(state, changes)
}

/**
 * @typedef {Record<string, any>} Changes   a member that is undefined is removed
 * @typedef {{event: RunEvent, data: Record<string, any>, time: string}} Given
 * @typedef {(call: Call, given: Given & {position: string, further: boolean}) => Changes} Step
 * @typedef {(state: RunState, given: Given) => Changes} Turn
 */

/** @param {RunState} state
 * @param {Given & {position: string, step: Step}} given
 * @returns {Changes} */
function withStep({ calls, calls_dropped: dropped = 0 }, given) {
  const key = given.event.call?.key ?? ''
  let at = calls.length - 1
  while (at >= 0 && calls[at].key !== key) at--
  if (at < 0) {
    return appended(
      calls,
      dropped,
      stepped({ key, name: '', title: '', attempt: 1, state: 'identified' }, given),
    )
  }
  const call = stepped(calls[at], given)
  if (call === calls[at]) return {}
  const next = calls.slice()
  next[at] = call
  return { calls: next }
}

/** @param {Call[]} calls
 * @param {number} dropped
 * @param {Call} call
 * @returns {Changes} */
function appended(calls, dropped, call) {
  if (calls.length < MAX_CALLS) return { calls: [...calls, call] }
  const oldest = Math.max(
    0,
    calls.findIndex((other) => !isOpen(other)),
  )
  return { calls: [...calls.slice(0, oldest), ...calls.slice(oldest + 1), call], calls_dropped: dropped + 1 }
}

/** @param {Call} call
 * @param {Given & {position: string, step: Step}} given
 * @returns {Call} */
function stepped(call, given) {
  const { event, step } = given
  const ref = /** @type {Record<string, any>} */ (event.call)
  const starts = event.type === 'tool_execution_started'
  // Who doesn't count attempts still starts a held call again.
  const again =
    starts && (call.state === 'identified' || call.state === 'interrupted') && call.started_at !== undefined
  const attempt = readAttempt(ref.attempt) ?? call.attempt + (again ? 1 : 0)
  const further = attempt > call.attempt
  if (attempt < call.attempt || !(isOpen(call) || (starts && further))) return call

  const changes = step(call, { ...given, further })
  changes.attempt = attempt
  changes.name = text(ref.name) || call.name
  changes.title = text(ref.title) || call.title || humanised(changes.name)
  if (changes.state && !isOpen(/** @type {Call} */ (changes))) changes.title = withoutEllipsis(changes.title)
  if (typeof ref.id === 'string') changes.id = ref.id
  const index = readCount(ref.index)
  if (index !== undefined) changes.index = index
  if (typeof event.parent === 'string') changes.parent = event.parent
  return changed(call, changes)
}

/** @type {Step} */
function identified(call, { event, time, further }) {
  /** @type {Changes} */
  const changes = {}
  // A late one neither stops what runs nor takes back a question that waits.
  if (further) {
    changes.state = 'identified'
    changes.interrupt = undefined
  }
  if (event.type === 'tool_call_identified') changes.identified_at = call.identified_at ?? time
  return changes
}

/** @type {Step} */
function started(call, { data, time }) {
  return {
    state: 'running',
    arguments: data.arguments ?? call.arguments,
    arguments_summary: text(data.arguments_summary) ?? call.arguments_summary,
    progress: undefined,
    result: undefined,
    result_summary: undefined,
    error: undefined,
    interrupt: undefined,
    started_at: time,
    ended_at: undefined,
    duration_ms: undefined,
    truncated: undefined,
  }
}

/** @type {Step} */
function running(call, { event, data, time, further }) {
  if (call.state === 'interrupted' && !further) return {}
  /** @type {Changes} */
  const changes = { state: 'running', interrupt: undefined, started_at: call.started_at ?? time }
  // A generator's piece of output says nothing about how far it is.
  if (event.type === 'tool_progress') changes.progress = readProgress(data) ?? call.progress
  return changes
}

/** @type {Step} */
function completed(_call, given) {
  const { data } = given
  return {
    ...ended(given),
    state: 'completed',
    result: data.result ?? undefined,
    result_summary: text(data.result_summary),
  }
}

/** @type {Step} */
function failed(_call, given) {
  const error = readCallFailure(given.data)
  const { reason } = error
  const state =
    reason === 'denied' || reason === 'rejected' ? 'denied' : reason === 'cancelled' ? 'cancelled' : 'failed'
  return { ...ended(given), state, error }
}

/** @param {Given} given
 * @returns {Changes} */
const ended = ({ data, time }) => ({
  interrupt: undefined,
  ended_at: time,
  duration_ms: readDuration(data.duration_ms),
})

/** @type {Step} */
const interrupted = (_call, { data, position }) => ({
  state: 'interrupted',
  interrupt: readQuestion(position, data),
})

/** @type {Step} */
const decided = () => ({ state: 'identified', interrupt: undefined })

/** @type {Map<string, Step>} */
const CALL_STEPS = new Map([
  ['tool_call_identified', identified],
  ['tool_call_arguments', identified],
  ['tool_call_review', identified],
  ['tool_decision', decided],
  ['tool_execution_started', started],
  ['tool_pre_execution', running],
  ['tool_progress', running],
  ['tool_execution_exception', running],
  ['tool_interrupted', interrupted],
  ['tool_execution_completed', completed],
  ['tool_execution_failed', failed],
])

/** @type {Turn} */
function runStarted(state, { event, data }) {
  return {
    status: 'running',
    title: text(data.title) || state.title,
    agent: text(data.agent) || (text(event.agent) ?? state.agent),
    thread: text(data.thread) || (text(event.thread) ?? state.thread),
  }
}

/** @type {Turn} */
const runInterrupted = (_state, { data }) => ({
  status: 'interrupted',
  interrupts: readInterrupts(data.interrupts),
})

/** @type {Turn} */
const runResumed = () => ({ status: 'running', interrupts: undefined })

/** @type {Turn} */
function runRestored(state, { data }) {
  const restored = readState(state.run, NOWHERE, data)
  /** @type {Changes} */
  const changes = {}
  for (const name of /** @type {const} */ (['title', 'agent', 'thread', 'started_at', 'usage'])) {
    if (restored[name] !== undefined) changes[name] = restored[name]
  }
  // An end is an event of its own, behind this one.
  // Who isn't the owner says nothing of the run itself.
  const interrupted = ('status' in data ? restored : state).status === 'interrupted'
  changes.status = interrupted ? 'interrupted' : 'running'
  changes.interrupts = interrupted ? (restored.interrupts ?? state.interrupts) : undefined

  const places = new Map(state.calls.map(({ key }, at) => [key, at]))
  const calls = state.calls.slice()
  for (const call of restored.calls) {
    const at = places.get(call.key)
    if (at !== undefined) calls[at] = call
  }
  changes.calls = calls
  let dropped = state.calls_dropped
  for (const call of restored.calls) {
    if (places.has(call.key)) continue
    Object.assign(changes, appended(changes.calls, dropped ?? 0, call))
    dropped = changes.calls_dropped ?? dropped
  }
  return changes
}

/** @type {Turn} */
function used({ usage }, { data }) {
  const more = readUsage(data)
  if (!more || !usage) return { usage: more ?? usage }
  return {
    usage: {
      input: Math.min(usage.input + more.input, LARGEST_INT),
      output: Math.min(usage.output + more.output, LARGEST_INT),
      total: Math.min(usage.total + more.total, LARGEST_INT),
    },
  }
}

/** @type {Turn} */
function runEnded(state, { event, data, time }) {
  const changes = { ended_at: time, interrupts: undefined, calls: closed(state.calls, time) }
  if (event.type === 'run_completed')
    return { ...changes, status: 'completed', result: data.result ?? undefined }
  if (event.type === 'run_failed') return { ...changes, status: 'failed', error: readRunFailure(data) }
  return { ...changes, status: 'cancelled' }
}

/** @type {Map<string, Turn>} */
const RUN_TURNS = new Map([
  ['run_started', runStarted],
  ['run_interrupted', runInterrupted],
  ['run_resumed', runResumed],
  ['run_restored', runRestored],
  ['llm_token_usage', used],
  ['run_completed', runEnded],
  ['run_failed', runEnded],
  ['run_cancelled', runEnded],
])

/** Every open call cancelled: nobody will finish it any more.
 * @param {Call[]} calls
 * @param {string | undefined} time */
function closed(calls, time) {
  if (!calls.some(isOpen)) return calls
  return calls.map((call) =>
    isOpen(call)
      ? changed(call, {
          state: 'cancelled',
          title: withoutEllipsis(call.title),
          interrupt: undefined,
          ended_at: time,
        })
      : call,
  )
}

/** A copy with `changes` made to it; members that become undefined are gone.
 * @template {object} T
 * @param {T} object
 * @param {Changes} changes
 * @returns {T} */
function changed(object, changes) {
  const next = { ...object, ...changes }
  for (const name in changes) {
    if (changes[name] === undefined) delete (/** @type {Changes} */ (next)[name])
  }
  return next
}

/** Whether one decimal number of at most 20 digits is larger than another.
 * @param {string} seq
 * @param {string} other */
const isBeyond = (seq, other) => (seq.length === other.length ? seq > other : seq.length > other.length)

/** @param {string} title */
const withoutEllipsis = (title) => (title.endsWith('…') ? title.slice(0, -1) : title)

/** @param {string} name */
function humanised(name) {
  const words = name.replace(/[_-]/g, ' ').replace(/^ +| +$/g, '')
  // ASCII only, since two languages differ about the rest of Unicode.
  return words.replace(/^[a-z]/, (letter) => letter.toUpperCase())
}

// Reading what others wrote: the value if it is what it should be, else undefined.

/** @param {any} value
 * @returns {value is Record<string, any>} */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)

/** @param {any} value
 * @returns {string | undefined} */
const text = (value) => (typeof value === 'string' ? value : undefined)

/** @param {any} value
 * @returns {value is number} */
const isNumber = (value) => typeof value === 'number' && Math.abs(value) <= LARGEST_INT

/** @param {any} value */
const readCount = (value) =>
  Number.isSafeInteger(value) && value >= 0 ? /** @type {number} */ (value) : undefined

/** @param {any} value */
const readAttempt = (value) => readCount(value) || undefined

/** @param {any} value */
const readDuration = (value) => (isNumber(value) && value >= 0 ? value : undefined)

/** @param {Record<string, any>} data
 * @returns {Call['progress']} */
function readProgress(data) {
  const { chunk: _chunk, ...progress } = data
  if (!isNumber(progress.progress)) delete progress.progress
  if (!isNumber(progress.total)) delete progress.total
  if (typeof progress.message !== 'string') delete progress.message
  return Object.keys(progress).length ? progress : undefined
}

/** @param {any} value
 * @returns {RunState['usage']} */
function readUsage(value) {
  if (!isObject(value)) return undefined
  const [input, output, total] = [value.input, value.output, value.total].map(readCount)
  if (input === undefined && output === undefined && total === undefined) return undefined
  return { input: input ?? 0, output: output ?? 0, total: total ?? 0 }
}

/** @param {Record<string, any>} value */
const readRunFailure = ({ code, message }) => ({
  code: text(code) || 'unknown',
  message: text(message) ?? '',
})

/** @param {Record<string, any>} value */
const readCallFailure = ({ message, reason }) => ({
  message: text(message) ?? '',
  reason: text(reason) || 'error',
})

/** @param {string} position
 * @param {Record<string, any>} value
 * @returns {Question} */
const readQuestion = (position, value) =>
  present({
    position,
    message: text(value.message) ?? '',
    arguments: value.arguments,
    editable: typeof value.editable === 'boolean' ? value.editable : undefined,
    interrupt: value.interrupt,
  })

/** @param {any} value
 * @returns {RunState['interrupts']} */
function readInterrupts(value) {
  if (!Array.isArray(value)) return undefined
  const interrupts = value
    .filter((item) => isObject(item) && typeof item.key === 'string')
    .map(({ key, message, data }) => present({ key, message: text(message) ?? '', data }))
  return interrupts.length ? interrupts : undefined
}

/** @param {string} run
 * @param {string} position
 * @param {Record<string, any>} data
 * @returns {RunState} */
function readState(run, position, data) {
  return present({
    run,
    position,
    status: RUN_STATUSES.includes(data.status) ? data.status : 'running',
    title: text(data.title),
    agent: text(data.agent),
    thread: text(data.thread),
    started_at: text(data.started_at),
    ended_at: text(data.ended_at),
    result: data.result,
    error: isObject(data.error) ? readRunFailure(data.error) : undefined,
    usage: readUsage(data.usage),
    interrupts: readInterrupts(data.interrupts),
    calls: Array.isArray(data.calls) ? data.calls.filter(isCall).map(readCall) : [],
    calls_dropped: readCount(data.calls_dropped) || undefined,
  })
}

/** @param {any} value */
const isCall = (value) => isObject(value) && typeof value.key === 'string'

/** @param {Record<string, any>} value
 * @returns {Call} */
const readCall = (value) =>
  present({
    key: value.key,
    id: text(value.id),
    name: text(value.name) ?? '',
    title: text(value.title) ?? '',
    index: readCount(value.index),
    parent: text(value.parent),
    attempt: readAttempt(value.attempt) ?? 1,
    state: CALL_STATUSES.includes(value.state) ? value.state : 'identified',
    arguments: value.arguments,
    arguments_summary: text(value.arguments_summary),
    progress: isObject(value.progress) ? readProgress(value.progress) : undefined,
    result: value.result,
    result_summary: text(value.result_summary),
    error: isObject(value.error) ? readCallFailure(value.error) : undefined,
    interrupt:
      value.state === 'interrupted' && isObject(value.interrupt)
        ? readQuestion(text(value.interrupt.position) || NOWHERE, value.interrupt)
        : undefined,
    identified_at: text(value.identified_at),
    started_at: text(value.started_at),
    ended_at: text(value.ended_at),
    duration_ms: readDuration(value.duration_ms),
    truncated: value.truncated === true || undefined,
  })

/** The members that are there: neither undefined nor null.
 * @template {Record<string, any>} T
 * @param {T} object
 * @returns {T} */
function present(object) {
  for (const name in object) if (object[name] == null) delete object[name]
  return object
}
