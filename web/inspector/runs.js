// @ts-check
/** The runs at the left: asked for every two seconds while the page is visible. */

import { make, setText, swapIcon } from '../dom.js'
import { formatDuration } from '../labels.js'

/**
 * @typedef {Record<string, any> & { run: string, status: string }} Run an item of `GET /runs`
 *
 * @typedef {object} Listener
 * @property {(runs: Run[]) => void} listed
 * @property {(latency: number, skew: number) => void} reached milliseconds: of the round trip; this clock ahead of the
 * gateway's
 * @property {(retryAt: number) => void} lost
 * @property {(reason: string) => void} refused
 * @property {(run: string) => void} chosen
 */

const EVERY = 2000
const LONGEST = 30_000
/** The `date` header counts whole seconds: what is smaller is no difference. */
const COARSE = 2000
const ICONS = /** @type {Record<string, string>} */ ({ waiting: 'identified', interrupted: 'question' })
const WORDS = /** @type {Record<string, string>} */ ({
  interrupted: 'Waiting for you', waiting: 'Waiting', failed: 'Failed', cancelled: 'Stopped',
})

/** @param {number} ms @returns {string} how long ago */
export function ago(ms) {
  const minutes = Math.floor(ms / 60_000)
  if (minutes < 1) return 'now'
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`
}

/** @param {Run} run @param {number} now @param {string} [error] why it failed, if that is known @returns {string} */
export function summary(run, now, error) {
  if (run.status === 'failed' && error) return error.split('\n', 1)[0]
  const word = WORDS[run.status]
  if (run.status === 'interrupted') return word
  const { calls, started_at: start, ended_at: end } = run
  const ms = start && (run.status === 'running' || end) ? (end ? Date.parse(end) : now) - Date.parse(start) : undefined
  const count = calls === undefined ? undefined : `${calls} ${calls === 1 ? 'call' : 'calls'}`
  return [word, count, ms === undefined ? undefined : formatDuration(ms)].filter(Boolean).join(' · ') || 'Running'
}

/** @param {string} url @returns {number | undefined} milliseconds from the request to its answer, without waiting for a connection */
function roundTrip(url) {
  const entry = /** @type {PerformanceResourceTiming | undefined} */ (performance.getEntriesByName(url, 'resource').at(-1))
  performance.clearResourceTimings()
  return entry?.responseStart ? entry.responseStart - entry.requestStart : undefined
}

export class RunsPane {
  /** @type {Map<string, Item>} */
  #items = new Map()
  #failures = 0
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer
  #skew = 0
  /** Why runs failed, as far as this page has seen. @type {Map<string, string>} */
  errors = new Map()
  /** @type {string | undefined} */
  current
  /** @type {Run[]} */
  runs = []

  /** @param {HTMLElement} root @param {string} base address of the gateway @param {Listener} listener @param {AbortSignal} signal */
  constructor(root, base, listener, signal) {
    this.base = base
    this.listener = listener
    this.signal = signal
    this.list = make('ol')
    this.room = make('div', { class: 'room', 'aria-hidden': 'true' })
    this.scroll = make('div', { class: 'scroll', tabindex: '-1' }, this.list)
    this.list.append(this.room)
    root.append(make('h2', { class: 'label' }, 'Runs'), this.scroll)
    root.addEventListener('keydown', (event) => this.#step(event), { signal })
    document.addEventListener('visibilitychange', () => !document.hidden && this.ask(), { signal })
    signal.addEventListener('abort', () => clearTimeout(this.#timer))
  }

  /** Ask now, and go on asking. */
  async ask() {
    clearTimeout(this.#timer)
    const sent = performance.now()
    let wait = EVERY
    try {
      const response = await fetch(`${this.base}/runs`, { headers: { accept: 'application/json' }, signal: this.signal, cache: 'no-store' })
      const latency = roundTrip(response.url) ?? performance.now() - sent
      const body = await response.json()
      this.#failures = 0
      const date = Date.parse(response.headers.get('date') ?? '')
      const skew = Number.isNaN(date) ? 0 : Date.now() - date
      this.#skew = Math.abs(skew) < COARSE ? 0 : skew
      this.listener.reached(latency, this.#skew)
      if (response.ok) this.show(body.runs)
      else this.listener.refused(body.detail ?? body.title ?? String(response.status))
    } catch {
      if (this.signal.aborted) return
      this.#failures++
      wait = Math.min(LONGEST, EVERY * 2 ** Math.min(this.#failures, 5))
      this.listener.lost(Date.now() + wait)
    }
    clearTimeout(this.#timer)
    if (!document.hidden) this.#timer = setTimeout(() => this.ask(), wait)
  }

  /** @param {Run[]} runs newest first */
  show(runs) {
    this.runs = runs
    const known = new Set(runs.map((run) => run.run))
    for (const [id, item] of this.#items) {
      if (known.has(id)) continue
      item.element.remove()
      this.#items.delete(id)
    }
    const now = Date.now() - this.#skew
    runs.forEach((run, i) => {
      let item = this.#items.get(run.run)
      if (!item) {
        this.#items.set(run.run, (item = new Item(run.run)))
        item.link.addEventListener('click', (event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey) return
          event.preventDefault()
          this.listener.chosen(run.run)
        })
      }
      item.update(run, now, this.errors.get(run.run))
      item.mark(run.run === this.current)
      // Moved by a transform: the others don't jump while somebody reads them.
      item.element.style.transform = `translateY(${i * 3.5}rem)`
      if (this.list.children[i] !== item.element) this.list.insertBefore(item.element, this.list.children[i])
    })
    this.room.style.blockSize = `${runs.length * 3.5}rem`
    this.listener.listed(runs)
  }

  /** Let the clocks of runs that are under way go on. */
  beat() {
    const now = Date.now() - this.#skew
    for (const run of this.runs) if (run.status === 'running') this.#items.get(run.run)?.update(run, now)
  }

  /** @param {string | undefined} run */
  select(run) {
    this.current = run
    for (const [id, item] of this.#items) item.mark(id === run)
  }

  /** @param {KeyboardEvent} event */
  #step(event) {
    const by = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
    if (!by || !(event.target instanceof HTMLAnchorElement)) return
    event.preventDefault()
    const links = [...this.list.querySelectorAll('a')]
    links[links.indexOf(event.target) + by]?.focus()
  }
}

class Item {
  /** @param {string} run */
  constructor(run) {
    this.icon = make('span', { class: 'at' })
    this.name = make('span', { class: 'name' })
    this.when = make('span', { class: 'when' })
    this.sub = make('span', { class: 'sub' })
    const link = make('a', { href: `?run=${encodeURIComponent(run)}` }, this.icon, this.name, this.when, this.sub)
    this.link = /** @type {HTMLAnchorElement} */ (link)
    this.element = make('li', {}, link)
  }

  /** @param {Run} run @param {number} now @param {string} [error] */
  update(run, now, error) {
    swapIcon(this.icon, ICONS[run.status] ?? run.status)
    setText(this.name, run.title ?? run.run)
    setText(this.when, ago(now - Date.parse(run.updated_at ?? run.ended_at ?? run.started_at ?? '')))
    setText(this.sub, summary(run, now, error))
  }

  /** @param {boolean} current */
  mark(current) {
    if (current) this.link.setAttribute('aria-current', 'page')
    else this.link.removeAttribute('aria-current')
  }
}
