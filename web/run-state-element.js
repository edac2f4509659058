// @ts-check
/** `<run-state>`: every call of a run, as a quiet list of rows. */

import { CallRow, Disclosure } from './call-row.js'
import { describeCall, humanise, isExpired, isOpen } from './describe.js'
import { make, setText, swapIcon } from './dom.js'
import { formatDuration, label } from './labels.js'
import { RunElement } from './run-element.js'

/** @typedef {import('./describe.js').Call} Call */

const RULES = `
:host { display: block; line-height: 1.43; font-variant-numeric: tabular-nums; color: var(--_ink-2); text-align: start }
ol { list-style: none; margin: 0; padding: 0 }
.call + .call { margin-block-start: 2px }
.call { position: relative; min-inline-size: 0; border-radius: 8px; margin-inline-start: calc(24px * var(--depth, 0)); animation: tc-enter var(--_enter) }
.joining .call { animation: none }
.long .call { content-visibility: auto; contain-intrinsic-size: auto var(--_row) }
@keyframes tc-enter { from { opacity: 0; transform: translateY(4px) } }
.call[data-depth]::before { content: ""; position: absolute; inset-block: -1px; inset-inline-start: -4px; border-inline-start: 1px solid var(--_line) }
.row { display: flex; align-items: center; gap: 10px; inline-size: 100%; min-block-size: var(--_row); padding-inline: 12px; border-radius: 8px; transition: background var(--_press) }
.row:hover { background: var(--_select) }
.row:focus-visible { outline-offset: -2px }
.at, .turn { display: flex; flex: none }
.text { display: flex; flex: 1; min-inline-size: 0; white-space: pre }
.title, .detail, .error { flex: 0 1 auto; min-inline-size: 0; overflow: hidden; text-overflow: ellipsis }
.detail, .error { flex: none; max-inline-size: 60% }
.title, .time, .message, .value, dt { unicode-bidi: plaintext }
.title[data-tone="ink"] { color: var(--_ink) }
.title[data-tone="done"], .detail { color: var(--_ink-3) }
[data-state="running"] > .row .title { font-weight: 500 }
.error { color: var(--_bad) }
.time { flex: none; min-inline-size: 6ch; margin-inline-start: -6px; text-align: end; font-size: .93em; color: var(--_ink-3) }
.turn .icon { transition: transform var(--_open) }
[aria-expanded="true"] > .turn .icon { transform: rotate(90deg) }
:dir(rtl) .turn .icon { transform: scaleX(-1) }
:dir(rtl) [aria-expanded="true"] > .turn .icon { transform: rotate(90deg) }
.meter { position: absolute; inset-inline: 38px 38px; inset-block-start: calc(var(--_row) - 3px); block-size: 2px; border-radius: 1px; overflow: hidden; background: var(--_track); pointer-events: none }
.bar { display: block; block-size: 100%; background: var(--_accent); transform-origin: 0 0; transition: transform var(--_open) }
:dir(rtl) .bar { transform-origin: 100% 0 }
.stale .bar { background: var(--_ink-3) }
.panel { display: grid; grid-template-rows: 0fr; transition: grid-template-rows var(--_open) }
[aria-expanded="true"] ~ .panel { grid-template-rows: 1fr }
.inner { min-block-size: 0; min-inline-size: 0; overflow: hidden; padding-inline: 38px 12px }
.inner > :last-child { margin-block-end: 10px }
.well { position: relative; border-radius: 8px; background: var(--_sunken); padding: 12px; display: grid; gap: 12px; color: var(--_ink) }
.well > * { min-inline-size: 0 }
.raw { font: .857em/16px var(--_mono); color: var(--_ink-3); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; text-align: end }
.raw:not(:only-child) { position: absolute; inset-block-start: 12px; inset-inline-end: 12px; max-inline-size: 60% }
.label { font-size: .857em; line-height: 16px; color: var(--_ink-3); margin-block-end: 4px }
.value, dt { font: .893em/20px var(--_mono); white-space: pre-wrap; overflow-wrap: anywhere }
.cut { max-block-size: 240px; overflow: hidden }
dl { display: grid; grid-template-columns: fit-content(40%) minmax(0, 1fr); column-gap: 16px; margin: 0 }
dt, dd { margin: 0; min-inline-size: 0 }
.all { font-size: .93em; line-height: 20px; color: var(--_accent); padding-block: 4px; border-radius: 3px }
.all:hover { text-decoration: underline }
.message { margin: 0 0 8px; color: var(--_ink); max-inline-size: 68ch; overflow-wrap: anywhere }
[data-state="interrupted"] { background: var(--_warn-soft); box-shadow: inset 0 0 0 1px color-mix(in srgb, var(--_warn) 35%, transparent) }
[data-state="interrupted"] .well { background: color-mix(in srgb, var(--_surface) 70%, transparent) }
[data-state="interrupted"] .row:hover { background: none }
.group > .panel > .inner { padding-inline: 0 }
.group > .panel > .inner > ol { margin-block: 2px 0; margin-inline-start: 24px }
@media (forced-colors: active) { [data-state="interrupted"] { outline: 1px solid; outline-offset: -1px } .meter { forced-color-adjust: none } }
`

/** Calls of one tool that had all finished when the page came to them, under one row. */
class Group extends Disclosure {
  constructor() {
    super()
    this.element.classList.add('group')
    this.list = make('ol')
    this.inner.append(this.list)
  }

  /** @type {Call[]} */
  #calls = []

  /** @param {Call[]} calls */
  update(calls) {
    if (calls.length === this.#calls.length && calls.every((call, i) => call === this.#calls[i])) return
    this.#calls = calls
    const ms = calls.reduce((sum, call) => sum + (describeCall(call, 0).elapsed ?? 0), 0)
    swapIcon(this.icon, 'completed')
    this.title.dataset.tone = 'quiet'
    setText(this.title, label('times', { title: humanise(calls[0].name), n: calls.length }))
    setText(this.time, formatDuration(ms))
    setText(this.spoken, `, ${label('state_completed')}, ${formatDuration(ms)}`)
  }
}

export class RunStateElement extends RunElement {
  static css = RULES

  /** @type {Map<string, CallRow>} */
  #rows = new Map()
  /** Key of the first call → its group. @type {Map<string, Group>} */
  #groups = new Map()
  /** Key of a folded call → key of its group's first. @type {Map<string, string>} */
  #folded = new Map()
  /** The calls as they were drawn. @type {Call[]} */
  #drawn = []
  /** @type {string | undefined} */
  #run

  /** Draw states without saying them: for whoever moves through a run's past. */
  silent = false

  constructor() {
    super()
    this.list = make('ol', { part: 'list' })
    this.body.append(this.list, make('slot', { name: 'expired', hidden: '' }))
  }

  render() {
    const { state } = this
    const calls = state?.calls ?? []
    if (this.joining || this.#run !== state?.run) this.#begin(calls)
    this.#run = state?.run
    const stale = this.phase === 'lost' || this.phase === 'dead'
    this.body.classList.toggle('stale', stale)
    this.body.classList.toggle('joining', this.joining)
    this.body.classList.toggle('long', calls.length > 60)
    this.list.setAttribute('aria-label', label('calls'))
    this.list.setAttribute('aria-busy', String(calls.some(isOpen)))
    this.list.hidden = !calls.length
    const expired = this.body.querySelector('slot')
    if (expired) expired.hidden = !(state && isExpired(state))
    if (!this.#retouch(calls)) this.#draw(calls)
    this.#drawn = calls
    if (state) this.joining = false
    this.clock(!stale && calls.some(isOpen))
  }

  beat() {
    const { now } = this
    for (const row of this.#rows.values()) if (isOpen(row.call)) row.tick(now)
  }

  /**
   * Bring a call into view, whatever it is folded under.
   *
   * @param {string} key
   * @param {boolean} [focus] give its row the focus, too
   */
  reveal(key, focus = true) {
    const row = this.#rows.get(key)
    if (!row) return
    this.#groups.get(this.#folded.get(key) ?? '')?.toggle(true)
    row.element.scrollIntoView({ block: 'nearest' })
    if (focus) row.button.focus({ preventScroll: true })
  }

  /** @param {Call[]} calls */
  #begin(calls) {
    this.#rows.clear()
    this.#groups.clear()
    this.#folded.clear()
    this.list.replaceChildren()
    this.#drawn = []
    /** @type {Call[]} */
    let same = []
    for (const call of [...calls, undefined]) {
      if (call && call.state === 'completed' && call.name === (same[0] ?? call).name && call.parent === (same[0] ?? call).parent) {
        same.push(call)
        continue
      }
      if (same.length >= 3) for (const each of same) this.#folded.set(each.key, same[0].key)
      same = call?.state === 'completed' ? [call] : []
    }
  }

  /**
   * Draw what is different in a list of the same calls: most frames bring no more.
   *
   * @param {Call[]} calls
   * @returns {boolean} false if it is another list
   */
  #retouch(calls) {
    const before = this.#drawn
    if (calls.length !== before.length || !calls.length) return false
    const changed = calls.filter((call, i) => call !== before[i])
    if (calls.some((call, i) => call.key !== before[i].key || call.parent !== before[i].parent)) return false
    for (const call of changed) {
      const row = this.#rows.get(call.key)
      if (!row || this.#folded.has(call.key)) return false
      this.#update(row, call, Number(row.element.dataset.depth ?? 0))
    }
    return true
  }

  /** @param {CallRow} row @param {Call} call @param {number} depth */
  #update(row, call, depth) {
    const before = row.call
    if (before === call) return
    row.update(call, this.now, depth)
    if (!this.joining && before.state !== call.state) this.#announce(row, call)
  }

  /** @param {Call[]} calls in order of appearance */
  #draw(calls) {
    /** @type {Map<Element, Element[]>} */
    const wanted = new Map([[this.list, []]])
    /** @type {Map<string, Call[]>} */
    const grouped = new Map()
    for (const { call, depth } of nested(calls)) {
      let list = this.list
      const first = this.#folded.get(call.key)
      if (first) {
        const group = this.#groups.get(first) ?? new Group()
        this.#groups.set(first, group)
        if (!grouped.has(first)) wanted.get(list)?.push(group.element)
        add(grouped, first, call)
        list = group.list
      }

      let row = this.#rows.get(call.key)
      if (!row) this.#rows.set(call.key, (row = new CallRow()))
      this.#update(row, call, depth)
      add(wanted, list, row.element)
    }
    for (const [first, group] of grouped) this.#groups.get(first)?.update(group)
    for (const [list, elements] of wanted) arrange(list, elements)
    const known = new Set(calls.map((call) => call.key))
    for (const key of this.#rows.keys()) if (!known.has(key)) this.#rows.delete(key)
  }

  /** @param {CallRow} row @param {Call} call */
  #announce(row, call) {
    if (this.silent) return
    const urgent = call.state === 'failed' || call.state === 'interrupted'
    const what = call.state === 'interrupted' ? call.interrupt?.message : call.error?.message
    const parts = [row.title.textContent, label(`state_${call.state}`), urgent ? what : undefined]
    this.announcer.say(parts.filter(Boolean).join(', '), urgent)
  }
}

/** @param {Element} list @param {Element[]} elements what it shall hold, in order; what stays is not touched */
function arrange(list, elements) {
  let at = list.firstElementChild
  for (const element of elements) {
    if (element === at) at = at.nextElementSibling
    else list.insertBefore(element, at)
  }
  while (at) {
    const next = at.nextElementSibling
    at.remove()
    at = next
  }
}

/**
 * @template K, V
 * @param {Map<K, V[]>} lists
 * @param {K} key
 * @param {V} value
 */
function add(lists, key, value) {
  const list = lists.get(key)
  if (list) list.push(value)
  else lists.set(key, [value])
}

/**
 * Calls with those of nested agents right under their parents.
 *
 * @param {Call[]} calls
 * @returns {{ call: Call, depth: number }[]}
 */
export function nested(calls) {
  if (!calls.some((call) => call.parent)) return calls.map((call) => ({ call, depth: 0 }))
  const known = new Set(calls.map((call) => call.key))
  /** @type {Map<string, Call[]>} */
  const children = new Map()
  for (const call of calls) {
    add(children, call.parent !== undefined && known.has(call.parent) ? call.parent : '', call)
  }
  /** @param {string} key @param {number} depth @returns {{ call: Call, depth: number }[]} */
  const under = (key, depth) => (children.get(key) ?? []).flatMap((call) => [{ call, depth }, ...under(call.key, depth + 1)])
  return under('', 0)
}
