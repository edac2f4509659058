// @ts-check
/** The raw events of a run: time, type, number; filter, copy, and the JSON of each. */

import { icon } from '../icons.js'
import { followEnd, make } from '../dom.js'

/** @typedef {import('./history.js').Entry} Entry */

/** Rows that share one containing block, so that a browser lays out only the blocks in sight. */
const BATCH = 100
/** Rows made in one go, and milliseconds from one to the next. */
const AT_ONCE = 400
const PACE = 100
const TONES = /** @type {Record<string, string>} */ ({
  tool_execution_failed: 'bad', run_failed: 'bad', tool_execution_exception: 'bad', llm_error: 'bad',
  retries_exceeded: 'bad', tool_interrupted: 'warn', run_interrupted: 'warn',
})

/** @param {string} time RFC 3339 @returns {string} seconds and milliseconds of its minute */
const clock = (time) => time.slice(17, 23)

/** @param {string} position @returns {string} */
const seq = (position) => position.slice(position.indexOf('-') + 1)

export class EventsPane {
  /** @type {readonly Entry[]} */
  #entries = []
  #made = 0
  /** @type {HTMLElement[]} */
  #rows = []
  #filter = ''
  #cursor = 0
  /** @type {HTMLElement | undefined} */
  #here
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #due
  #madeAt = 0

  /**
   * @param {HTMLElement} root
   * @param {object} listener
   * @param {(entry: Entry) => void} listener.chosen
   * @param {() => void} listener.closed
   * @param {(text: string, said: string) => void} listener.copy
   */
  constructor(root, listener) {
    this.listener = listener
    this.input = make('input', { type: 'text', placeholder: 'Filter', 'aria-label': 'Filter events by type', spellcheck: 'false', autocomplete: 'off' })
    const copy = make('button', { class: 'tool', type: 'button', 'aria-label': 'Copy these events', title: 'Copy these events' }, icon('copy'))
    const close = make('button', { class: 'tool close', type: 'button', 'aria-label': 'Close events', title: 'Close events' }, icon('close'))
    this.list = make('div', { class: 'scroll list', tabindex: '-1' })
    this.toEnd = followEnd(this.list)
    this.none = make('p', { class: 'none', hidden: '' }, 'No event of this type')
    root.append(
      make('div', { class: 'head' }, make('h2', { class: 'label' }, 'Events'), make('label', { class: 'filter' }, icon('filter'), this.input), copy, close),
      this.none, this.list)
    this.input.addEventListener('input', () => this.#filterBy(/** @type {HTMLInputElement} */ (this.input).value))
    copy.addEventListener('click', () => {
      const shown = this.#entries.filter((entry) => this.#passes(entry.event.type))
      listener.copy(shown.map(({ position, event }) => JSON.stringify({ id: position, ...event })).join('\n'), `${shown.length} events copied`)
    })
    close.addEventListener('click', listener.closed)
    this.list.addEventListener('keydown', (event) => this.#step(event))
  }

  /** @param {readonly Entry[]} entries a list that only grows; another one begins anew */
  follow(entries) {
    if (entries !== this.#entries) {
      this.#entries = entries
      this.#made = this.#cursor = 0
      this.#rows = []
      this.list.replaceChildren()
    }
    // Nobody reads faster than this, and each time costs a layout.
    this.#due ??= setTimeout(() => this.#make(), Math.max(0, this.#madeAt + PACE - performance.now()))
  }

  #make() {
    this.#due = undefined
    this.#madeAt = performance.now()
    const { list } = this
    const until = Math.min(this.#entries.length, this.#made + AT_ONCE)
    for (; this.#made < until; this.#made++) {
      if (this.#made % BATCH === 0) list.append(make('div', { class: 'batch' }))
      const row = this.#row(this.#entries[this.#made], this.#made)
      this.#rows.push(row)
      const batch = /** @type {HTMLElement} */ (list.lastElementChild)
      batch.append(row)
      batch.style.setProperty('--n', String(batch.childElementCount))
    }
    this.#cursorAt(this.#cursor)
    this.toEnd()
    if (this.#made < this.#entries.length) this.follow(this.#entries)
  }

  /** @param {Entry} entry @param {number} index */
  #row({ position, event }, index) {
    const row = make('button', { class: 'event', type: 'button', 'aria-expanded': 'false', tabindex: index ? '-1' : '0' },
      make('span', { class: 'clock' }, clock(event.time)), make('span', { class: 'type' }, event.type), make('span', { class: 'seq' }, seq(position)))
    if (TONES[event.type]) row.dataset.tone = TONES[event.type]
    row.hidden = !this.#passes(event.type)
    row.classList.toggle('later', index >= this.#cursor)
    row.addEventListener('click', () => this.#toggle(row, index))
    return row
  }

  /** @param {HTMLElement} row @param {number} index */
  #toggle(row, index) {
    const open = row.getAttribute('aria-expanded') === 'true'
    row.setAttribute('aria-expanded', String(!open))
    if (open) {
      row.nextElementSibling?.remove()
      return
    }

    const { position, event } = this.#entries[index]
    row.after(make('pre', { class: 'raw scroll', tabindex: '0', 'aria-label': 'The event as JSON' }, JSON.stringify({ id: position, ...event }, undefined, 2)))
    this.listener.chosen(this.#entries[index])
  }

  /** @param {string} filter */
  #filterBy(filter) {
    this.#filter = filter.trim().toLowerCase()
    this.#rows.forEach((row, i) => {
      row.hidden = !this.#passes(this.#entries[i].event.type)
      if (row.nextElementSibling?.classList.contains('raw')) /** @type {HTMLElement} */ (row.nextElementSibling).hidden = row.hidden
    })
    this.none.hidden = !this.#filter || this.#rows.some((row) => !row.hidden)
  }

  /** @param {string} type */
  #passes(type) {
    return !this.#filter || this.#filter.split(/[\s,]+/).some((part) => type.includes(part.replace(/\*$/, '')))
  }

  /** Show how far the run has been replayed. @param {number} count events */
  cursor(count) {
    this.#cursorAt(count)
    const row = this.#rows[count - 1]
    if (row && count < this.#entries.length && !row.hidden) row.scrollIntoView({ block: 'nearest' })
  }

  /** @param {number} count */
  #cursorAt(count) {
    const [low, high] = [Math.min(count, this.#cursor), Math.max(count, this.#cursor)]
    for (let i = low; i < high; i++) this.#rows[i]?.classList.toggle('later', i >= count)
    this.#here?.classList.remove('here')
    this.#here = count < this.#entries.length ? this.#rows[count - 1] : undefined
    this.#here?.classList.add('here')
    this.#cursor = count
  }

  /** @param {KeyboardEvent} event */
  #step(event) {
    const by = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
    const at = this.#rows.indexOf(/** @type {HTMLElement} */ (event.target))
    if (!by || at < 0) return
    event.preventDefault()
    for (let i = at + by; i >= 0 && i < this.#rows.length; i += by) {
      if (this.#rows[i].hidden) continue
      this.#rows[at].tabIndex = -1
      this.#rows[i].tabIndex = 0
      this.#rows[i].focus()
      return
    }
  }
}
