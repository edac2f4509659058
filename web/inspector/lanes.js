// @ts-check
/** The bars of the timeline, collected from a run's events as they come: each attempt is a bar of its own. No DOM. */

/**
 * @typedef {object} Bar
 * @property {'identified' | 'running' | 'waiting' | 'completed' | 'failed' | 'denied' | 'cancelled'} kind what it is,
 * or how it ended
 * @property {number} from milliseconds since 1970
 * @property {number} [to] absent while it lasts
 * @property {number} [attempt]
 *
 * @typedef {object} Lane
 * @property {string} key
 * @property {string} title
 * @property {number} depth
 * @property {string} [parent]
 * @property {Bar[]} bars
 */

const ENDED_BY = /** @type {Record<string, Bar['kind']>} */ ({
  denied: 'denied', rejected: 'denied', cancelled: 'cancelled',
})
const TERMINAL = new Set(['run_completed', 'run_failed', 'run_cancelled'])
const bare = (/** @type {string} */ title) => title.replace(/\s*…$/, '')

export class Lanes {
  /** In order of first appearance. @type {Map<string, Lane>} */
  lanes = new Map()
  /** Lanes that changed since somebody emptied this. @type {Set<Lane>} */
  changed = new Set()
  /** When the run began. @type {number | undefined} */
  start
  /** When it ended. @type {number | undefined} */
  end

  /** @param {Record<string, any>} event an envelope */
  push(event) {
    const at = Date.parse(event.time)
    if (event.type === 'snapshot') return this.#replace(event.data)
    if (event.type === 'run_started') this.#reset()
    this.start ??= at
    if (TERMINAL.has(event.type)) return this.#close(at)
    if (event.call) this.#step(event, at)
  }

  #reset() {
    this.lanes.clear()
    this.changed.clear()
    this.start = this.end = undefined
  }

  /** @param {number} at */
  #close(at) {
    this.end = at
    for (const lane of this.lanes.values()) {
      if (finish(lane.bars, at, 'cancelled')) this.changed.add(lane)
    }
  }

  /** @param {Record<string, any>} event @param {number} at */
  #step({ type, call, parent, data = {} }, at) {
    const lane = this.lanes.get(call.key) ?? this.#open(call.key, parent)
    lane.title = bare(call.title ?? call.name)
    this.changed.add(lane)
    const { bars } = lane
    const last = bars.at(-1)
    const fresh = !last || last.to !== undefined
    /** @param {Bar['kind']} kind */
    const begin = (kind) => {
      // A call that is held as soon as it starts has not run.
      if (last?.kind === 'running' && last.from === at) bars.pop()
      finish(bars, at, 'completed')
      bars.push({ kind, from: at, attempt: call.attempt })
    }
    if (type === 'tool_call_identified' && fresh) begin('identified')
    else if (type === 'tool_execution_started') begin('running')
    else if (type === 'tool_interrupted') begin('waiting')
    else if (type === 'tool_decision') begin('identified')
    else if (type === 'tool_execution_completed') finish(bars, at, 'completed')
    else if (type === 'tool_execution_failed') finish(bars, at, ENDED_BY[data.reason] ?? 'failed')
  }

  /** @param {string} key @param {string | undefined} parent @returns {Lane} */
  #open(key, parent) {
    const above = parent === undefined ? undefined : this.lanes.get(parent)
    const lane = { key, title: '', parent, depth: above ? above.depth + 1 : 0, bars: [] }
    this.lanes.set(key, lane)
    return lane
  }

  /** @param {Record<string, any>} state what is left of a past that was trimmed away */
  #replace(state) {
    this.#reset()
    if (state.started_at) this.start = Date.parse(state.started_at)
    for (const call of state.calls ?? []) {
      const lane = this.#open(call.key, call.parent)
      lane.title = bare(call.title)
      const [identified, started, ended] = [call.identified_at, call.started_at, call.ended_at].map((time) => (time ? Date.parse(time) : undefined))
      const open = call.state === 'interrupted' ? 'waiting' : call.state
      if (identified !== undefined && call.state !== 'running') lane.bars.push({ kind: 'identified', from: identified, to: started ?? ended })
      if (started !== undefined) lane.bars.push({ kind: open, from: started, to: ended })
      this.start ??= identified ?? started
    }
  }

  /** Lanes with those of nested agents under their parents. @returns {Lane[]} */
  ordered() {
    const all = [...this.lanes.values()]
    if (!all.some((lane) => lane.depth)) return all
    /** @type {Map<string | undefined, Lane[]>} */
    const children = new Map()
    for (const lane of all) {
      const parent = lane.depth ? lane.parent : undefined
      children.set(parent, [...(children.get(parent) ?? []), lane])
    }
    /** @param {string | undefined} parent @returns {Lane[]} */
    const under = (parent) => (children.get(parent) ?? []).flatMap((lane) => [lane, ...under(lane.key)])
    return under(undefined)
  }
}

/**
 * End the bar that lasts, if there is one.
 *
 * @param {Bar[]} bars
 * @param {number} at
 * @param {Bar['kind']} kind how a call that ran has ended; what was only identified or waiting stays that
 * @returns {boolean} whether there was one
 */
function finish(bars, at, kind) {
  const bar = bars.at(-1)
  if (!bar || bar.to !== undefined) return false
  bar.to = at
  if (bar.kind === 'running') bar.kind = kind
  return true
}

const STEPS = [100, 200, 500, 1000, 2000, 4000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 3_600_000]

/**
 * Where the axis is marked.
 *
 * @param {number} from milliseconds
 * @param {number} to
 * @param {number} most marks
 * @returns {number[]} milliseconds
 */
export function ticks(from, to, most) {
  const span = Math.max(1, to - from)
  const step = STEPS.find((each) => span / each <= most) ?? Math.ceil(span / most / 3_600_000) * 3_600_000
  const marks = []
  for (let at = Math.ceil(from / step) * step; at < to; at += step) marks.push(at)
  return marks
}
