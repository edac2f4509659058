// @ts-check
/** One call of the list: a row that is a button, and the well it opens. The row is made once and then kept up to date. */

import { describeCall, elapsedOf, fractionOf, isOpen, parseSummary, progressText } from './describe.js'
import { make, setText, swapIcon } from './dom.js'
import { formatDuration, label } from './labels.js'

/** @typedef {import('./describe.js').Call} Call */

let count = 0
/** What fits into the 240 px of a well: twelve lines of 20. */
const LINES = 12

/**
 * A row and the panel it opens; `fill` is called when the panel is first needed and whenever it may be stale.
 */
export class Disclosure {
  constructor() {
    const id = `tc-${++count}`
    this.icon = make('span', { class: 'at' })
    this.title = make('span', { class: 'title', part: 'title' })
    this.detail = make('span', { class: 'detail', part: 'detail' })
    this.error = make('span', { class: 'error', part: 'error' })
    this.spoken = make('span', { class: 'sr' })
    this.time = make('span', { class: 'time', part: 'time', 'aria-hidden': 'true' })
    this.chevron = make('span', { class: 'turn' })
    swapIcon(this.chevron, 'chevron')
    this.button = make('button', { class: 'row', part: 'row', type: 'button', 'aria-expanded': 'false', 'aria-controls': id },
      this.icon, make('span', { class: 'text' }, this.title, this.detail, this.error, this.spoken), this.time, this.chevron)
    // Not laid out, yet found by a search in the page.
    this.inner = make('div', { class: 'inner', hidden: 'until-found' })
    this.inner.addEventListener('beforematch', () => this.toggle(true))
    this.panel = make('div', { class: 'panel', id }, this.inner)
    this.element = make('li', { class: 'call', part: 'call' }, this.button, this.panel)
    this.button.addEventListener('click', () => this.toggle(!this.open))
  }

  get open() {
    return this.button.getAttribute('aria-expanded') === 'true'
  }

  /** @param {boolean} open */
  toggle(open) {
    if (open) this.fill()
    this.inner.hidden = /** @type {any} */ (open ? false : 'until-found')
    this.button.setAttribute('aria-expanded', String(open))
  }

  fill() {}
}

/** A call as a row. */
export class CallRow extends Disclosure {
  constructor() {
    super()
    this.call = /** @type {Call} */ ({})
    /** @type {Map<string, { text: string, node: HTMLElement }>} */
    this.sections = new Map()
    this.bar = this.meter = /** @type {HTMLElement | undefined} */ (undefined)
    this.asked = false
  }

  /**
   * @param {Call} call
   * @param {number} now on the agent's clock
   * @param {number} depth of nesting
   */
  update(call, now, depth) {
    const asks = call.state === 'interrupted'
    this.call = call
    this.element.dataset.state = call.state
    if (depth) this.element.dataset.depth = String(depth)
    this.element.style.setProperty('--depth', String(depth))
    const shown = describeCall(call, now)
    swapIcon(this.icon, shown.icon)
    setText(this.title, shown.title.replace(/\s*…$/, ''))
    this.title.dataset.tone = shown.tone
    setText(this.detail, shown.detail ? ` · ${shown.detail}` : '')
    setText(this.error, shown.error ? ` — ${shown.error}` : '')
    // What has not run says so in its detail.
    const spoken = [shown.tone === 'done' ? '' : label(`state_${call.state}`), isOpen(call) || shown.elapsed === undefined ? '' : formatDuration(shown.elapsed)]
    setText(this.spoken, ['', ...spoken.filter(Boolean)].join(', '))
    this.tick(now)
    this.#progress(call)
    // Only a question opens itself, and it folds when it is answered.
    if (asks !== this.asked) this.toggle(asks)
    this.asked = asks
    if (this.open) this.fill()
  }

  /** @param {number} now */
  tick(now) {
    const ms = elapsedOf(this.call, now)
    setText(this.time, ms === undefined || (isOpen(this.call) && ms < 1000) ? '' : formatDuration(ms))
  }

  /** @param {Call} call */
  #progress(call) {
    const fraction = call.state === 'running' ? fractionOf(call) : undefined
    if (fraction === undefined) {
      this.meter?.remove()
      this.meter = undefined
      return
    }

    if (!this.meter) {
      this.bar = make('span', { class: 'bar' })
      this.meter = make('span', { class: 'meter', part: 'progress', role: 'progressbar', 'aria-valuemin': '0', 'aria-valuemax': '100' }, this.bar)
      this.button.after(this.meter)
    }
    this.bar?.style.setProperty('transform', `scaleX(${fraction})`)
    this.meter.setAttribute('aria-label', this.title.textContent ?? '')
    this.meter.setAttribute('aria-valuenow', String(Math.round(fraction * 100)))
    this.meter.setAttribute('aria-valuetext', progressText(call) ?? '')
  }

  fill() {
    const { call } = this
    const question = call.state === 'interrupted'
    const asked = call.interrupt
    const args = (question && asked?.arguments) || call.arguments || parseSummary(call.arguments_summary) || call.arguments_summary
    const result = call.result ?? call.result_summary
    this.#section('message', question ? sentences(asked?.message, label('waiting_for')) : undefined, sentence)
    this.#section('arguments', args, question ? bare : labelled)
    this.#section('error', call.state === 'failed' || call.state === 'denied' ? call.error?.message : undefined, labelled)
    this.#section('result', result, labelled)
    this.#section('tool', question ? undefined : [call.name, call.id ?? call.key].filter(Boolean).join(' · '), raw)
    if (!this.well) {
      this.well = make('div', { class: 'well', part: 'well' })
      this.inner.append(this.well)
    }
    const message = this.sections.get('message')
    if (message) this.inner.prepend(message.node)
    const wanted = ['tool', 'arguments', 'error', 'result'].flatMap((key) => this.sections.get(key)?.node ?? [])
    if (wanted.some((node, i) => this.well?.children[i] !== node) || wanted.length !== this.well.childElementCount) {
      this.well.replaceChildren(...wanted)
    }
    this.well.hidden = wanted.length === 0
  }

  /**
   * Keep a section's node while its value stays the same, so that a selection in it survives.
   *
   * @param {string} key
   * @param {unknown} value
   * @param {(key: string, value: any) => HTMLElement} build
   */
  #section(key, value, build) {
    const before = this.sections.get(key)
    const text = value === undefined ? '' : build.name + JSON.stringify(value)
    if (before?.text === text) return
    before?.node.remove()
    if (text) this.sections.set(key, { text, node: build(key, value) })
    else this.sections.delete(key)
  }
}

/** @param {string | undefined} first @param {string} second */
const sentences = (first, second) => (first ? `${first}${/[.?!…]$/.test(first) ? '' : '.'} ${second}` : second)

/** @param {string} _ @param {string} value */
const sentence = (_, value) => make('p', { class: 'message', part: 'message' }, value)

/** @param {string} _ @param {any} value */
const bare = (_, value) => make('div', {}, ...values(value))

/** @param {string} key @param {any} value */
const labelled = (key, value) => make('div', { class: 'section' }, make('div', { class: 'label' }, label(key)), ...values(value))

/** @param {string} _ @param {string} value */
const raw = (_, value) => make('div', { class: 'raw' }, value)

/** @param {unknown} value */
const written = (value) => (typeof value === 'string' ? value : JSON.stringify(value, undefined, 2) ?? String(value))

/** @param {any} value a mapping becomes two columns, anything else its text @returns {HTMLElement[]} */
function values(value) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return cut(written(value))
  const entries = Object.entries(value)
  if (!entries.length) return cut('{}')
  return [make('dl', {}, ...entries.flatMap(([name, each]) => [make('dt', {}, name), make('dd', {}, ...cut(written(each)))]))]
}

/** @param {string} text @returns {HTMLElement[]} its first lines, and a button for the others */
function cut(text) {
  const lines = text.split('\n')
  const long = lines.length > LINES || text.length > 2000
  const value = make('div', { class: long ? 'value cut' : 'value' }, long ? lines.slice(0, LINES).join('\n').slice(0, 2000) : text)
  if (!long) return [value]
  const more = make('button', { class: 'all', type: 'button' }, label('show_all', { n: lines.length }))
  more.addEventListener('click', () => {
    setText(value, text)
    value.classList.remove('cut')
    // The focus would fall to the page's start with the button that held it.
    value.tabIndex = -1
    value.focus({ preventScroll: true })
    more.remove()
  })
  return [value, more]
}
