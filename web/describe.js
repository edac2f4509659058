// @ts-check
/**
 * What to show for a RunState: words and figures, no DOM. Times are milliseconds since 1970 on the agent's
 * clock; `now` is passed in.
 */

import { fill, formatDuration, formatNumber, label, toolLabel } from './labels.js'

/**
 * @typedef {import('./fold.js').Call} Call
 * @typedef {import('./fold.js').RunState} RunState
 *
 * @typedef {object} Shown
 * @property {string} icon
 * @property {'ink' | 'quiet' | 'done'} tone how much the title recedes
 * @property {string} title
 * @property {string} [detail] after a dot
 * @property {string} [error] after a dash, in red
 * @property {number} [elapsed] milliseconds, if they are to be shown
 * @property {string} [tool] the tool's name, if the title is its own
 * @property {number} [more] calls open beside this one
 * @property {Call} [question] the call that waits for a person
 * @property {boolean} [ended]
 */

const ICONS = /** @type {Record<string, string>} */ ({ interrupted: 'question' })
const FORMS = /** @type {Record<string, number>} */ ({ completed: 1, failed: 2, interrupted: 3 })
const OPEN = new Set(['identified', 'running', 'interrupted'])
/** How long a refusal is worth a line of its own before the agent "thinks" again. */
const DENIED_SHOWN = 2000

/** @param {Call} call */
export const isOpen = (call) => OPEN.has(call.state)

/** @param {string | undefined} time RFC 3339 @returns {number | undefined} */
export const instant = (time) => (time ? Date.parse(time) : undefined)

/** @param {string} text */
const bare = (text) => text.replace(/\s*(…|\.\.\.)$/, '')

/** @param {string} name `web_search` @returns {string} `Web search` */
export function humanise(name) {
  const words = name.replace(/[_-]+/g, ' ').trim()
  return words.charAt(0).toUpperCase() + words.slice(1)
}

/**
 * The parts of a summary such as `city: Oslo, unit: C`, or nothing if it isn't surely one.
 *
 * @param {string | undefined} summary
 * @returns {Record<string, string> | undefined}
 */
export function parseSummary(summary) {
  if (!summary || !/^[A-Za-z_]\w*: /.test(summary)) return undefined
  const parts = summary.split(/, (?=[A-Za-z_]\w*: )/).map((part) => /** @type {[string, string]} */ (part.split(/: (.*)/s, 2)))
  const found = Object.fromEntries(parts)
  return Object.keys(found).length === parts.length ? found : undefined
}

/** @param {Call} call @returns {string} the title as it stands, in the page's own words if it has some */
export function titleOf(call) {
  const own = toolLabel(call.name, FORMS[call.state] ?? 0)
  const values = call.arguments ?? parseSummary(call.arguments_summary) ?? {}
  return (own && fill(own, values)) || call.title || humanise(call.name ?? '')
}

/** @param {Call} call @param {number} now @returns {number | undefined} milliseconds */
export function elapsedOf(call, now) {
  if (call.duration_ms !== undefined) return call.duration_ms
  const from = instant(call.started_at)
  if (from === undefined) return undefined
  const to = instant(call.ended_at) ?? (isOpen(call) ? now : undefined)
  return to === undefined ? undefined : Math.max(0, to - from)
}

/** @param {Call} call @returns {string | undefined} */
export function progressText({ progress: p }) {
  if (!p) return undefined
  if (p.message) return p.message
  if (p.progress === undefined) return undefined
  return p.total ? label('of', { progress: p.progress, total: p.total }) : formatNumber(p.progress)
}

/** @param {Call} call @returns {number | undefined} 0 to 1 */
export function fractionOf({ progress: p }) {
  const { progress, total } = p ?? {}
  return total && total > 0 && progress !== undefined && progress >= 0 ? Math.min(1, progress / total) : undefined
}

/** @param {string | undefined} text */
const firstLine = (text) => text?.split('\n', 1)[0]

/**
 * One call as a line.
 *
 * @param {Call} call
 * @param {number} now
 * @returns {Shown}
 */
export function describeCall(call, now) {
  const { state } = call
  const running = state === 'running'
  /** @type {Shown} */
  const shown = {
    icon: ICONS[state] ?? state,
    tone: running || state === 'failed' || state === 'interrupted' ? 'ink' : state === 'completed' ? 'quiet' : 'done',
    title: running ? titleOf(call) : bare(titleOf(call)),
    elapsed: elapsedOf(call, now),
    tool: call.name,
  }
  if (isOpen(call) && (shown.elapsed ?? 0) < 1000) shown.elapsed = undefined

  const details = []
  if (call.attempt > 1) details.push(label('attempt', { n: call.attempt }, 'ordinal'))
  if (running) details.push(progressText(call))
  if (state === 'identified') details.push(label('preparing'))
  if (state === 'denied' || state === 'cancelled') details.push(label(state))
  shown.detail = details.filter(Boolean).join(' · ') || undefined
  if (state === 'failed') shown.error = firstLine(call.error?.message)
  return shown
}

/** @param {Call[]} calls @returns {Call} the one started last; what hasn't started comes before all that has */
function newest(calls) {
  const at = (/** @type {Call} */ call) => call.started_at ?? ''
  return calls.reduce((best, call) => (at(call) >= at(best) ? call : best))
}

/** @param {RunState} state @returns {number | undefined} milliseconds */
export function runDuration(state, now = NaN) {
  const from = instant(state.started_at)
  const to = instant(state.ended_at) ?? now
  return from === undefined || Number.isNaN(to) ? undefined : Math.max(0, to - from)
}

/** Whether all that is left of a run is its stub. @param {RunState} state contract §4: `0-0` is no position */
export const isExpired = (state) => state.position === '0-0' && state.status !== 'waiting'

/**
 * A whole run as one line.
 *
 * @param {RunState} state
 * @param {number} now
 * @returns {Shown | undefined} nothing for a run that hasn't begun
 */
export function describeRun(state, now) {
  const { status } = state
  const calls = state.calls ?? []
  if (status === 'waiting' || isExpired(state)) return undefined
  if (status === 'completed') {
    const n = calls.length + (state.calls_dropped ?? 0)
    const ms = runDuration(state)
    return {
      icon: 'completed', tone: 'done', ended: true,
      title: [label('used', { n }), ms === undefined ? '' : formatDuration(ms)].filter(Boolean).join(' · '),
    }
  }

  if (status === 'cancelled') return { icon: 'cancelled', tone: 'done', title: label('stopped'), ended: true }
  if (status === 'failed') {
    const last = calls.at(-1)
    if (last?.state === 'failed') return { ...describeCall(last, now), detail: undefined, ended: true }
    return {
      icon: 'failed', tone: 'ink', title: label('failed'), error: firstLine(state.error?.message), ended: true,
      elapsed: runDuration(state),
    }
  }

  const question = calls.find((call) => call.state === 'interrupted')
  const asked = question?.interrupt?.message ?? state.interrupts?.[0]?.message
  if (question || status === 'interrupted') {
    return {
      icon: 'question', tone: 'ink', title: label('waiting'), question,
      detail: firstLine(asked) ?? (question && bare(titleOf(question))),
    }
  }

  const open = calls.filter(isOpen)
  if (open.length) {
    const running = open.filter((call) => call.state === 'running')
    const shown = describeCall(newest(running.length ? running : open), now)
    if (shown.icon === 'running') shown.detail = undefined
    return { ...shown, more: open.length - 1 }
  }

  const last = calls.at(-1)
  if (last?.state === 'denied' && now - (instant(last.ended_at) ?? 0) < DENIED_SHOWN) return describeCall(last, now)
  return { icon: 'running', tone: 'quiet', title: label('thinking') }
}
