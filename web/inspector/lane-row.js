// @ts-check
/** One lane of the timeline: a label, and a bar for each attempt. */

import { formatDuration } from '../labels.js'
import { make, setText } from '../dom.js'

/** @typedef {import('./lanes.js').Lane} Lane */

const WORDS = /** @type {Record<string, string>} */ ({
  identified: 'Prepared', running: 'Running', waiting: 'Waited', completed: 'Ran', failed: 'Failed after', cancelled: 'Stopped after', denied: 'Refused after',
})

export class LaneRow {
  /** It was drawn with a bar that goes on. */
  open = true
  /** @type {HTMLElement[]} */
  bars = []
  /** A line at the end of what runs. @type {HTMLElement | undefined} */
  #line
  /** What tells a failed bar from a completed one without its colour. @type {Map<number, HTMLElement>} */
  #crosses = new Map()

  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane
    this.who = make('span', { class: 'who' })
    this.track = make('span', { class: 'track' })
    this.element = make('button', { class: 'lane', type: 'button', tabindex: '-1', 'data-key': lane.key, 'aria-describedby': 'tip' }, this.who, this.track)
  }

  /**
   * @param {number} now
   * @param {(at: number) => number} x
   * @param {number} sign
   * @param {boolean} whole the scale has changed
   */
  update(now, x, sign, whole) {
    const { lane } = this
    setText(this.who, lane.title)
    this.who.style.setProperty('--depth', String(lane.depth))
    const shown = lane.bars.filter((bar) => bar.from <= now)
    this.open = lane.bars.some((bar) => bar.to === undefined || bar.to > now)
    let running = false
    while (this.bars.length > shown.length) {
      this.bars.pop()?.remove()
      this.#cross(this.bars.length, undefined)
    }
    shown.forEach((bar, i) => {
      let element = this.bars[i]
      if (!element) {
        element = make('span', { class: 'bar' })
        this.bars.push(element)
        this.track.append(element)
      }
      const open = bar.to === undefined || bar.to > now
      const kind = open && !['identified', 'waiting'].includes(bar.kind) ? 'running' : bar.kind
      running ||= kind === 'running'
      // What has ended stays where it is.
      const drawn = `${kind} ${bar.from} ${open ? now : bar.to} ${shown.length}`
      if (!whole && element.dataset.drawn === drawn) return
      element.dataset.drawn = drawn
      element.dataset.kind = kind
      element.classList.toggle('first', kind === 'identified' && i + 1 < shown.length)
      const left = x(bar.from)
      element.style.transform = `translateX(${sign * left}px)`
      const width = Math.max(2, x(open ? now : bar.to ?? now) - left)
      element.style.inlineSize = `${width}px`
      this.#cross(i, kind === 'failed' ? `translateX(${sign * (left + width)}px)` : undefined)
    })
    if (!running) {
      this.#line?.remove()
      this.#line = undefined
      return
    }

    if (!this.#line) this.track.append((this.#line = make('span', { class: 'now' })))
    this.#line.style.transform = `translateX(${sign * x(now)}px)`
  }

  /** @param {number} i of a bar @param {string | undefined} transform nothing takes it away */
  #cross(i, transform) {
    const known = this.#crosses.get(i)
    if (!transform) {
      known?.remove()
      this.#crosses.delete(i)
      return
    }

    const cross = known ?? make('span', { class: 'cross' })
    if (!known) this.track.append(cross)
    this.#crosses.set(i, cross)
    cross.style.transform = transform
  }

  /** @param {number} start @param {number} now @returns {[string, string][]} */
  figures(start, now) {
    const { bars } = this.lane
    /** @type {[string, string][]} */
    const figures = bars.filter((bar) => bar.from <= now).map((bar) => [
      bar.attempt && bar.attempt > 1 && bar.kind !== 'identified' ? `${WORDS[bar.kind]} (try ${bar.attempt})` : WORDS[bar.kind],
      formatDuration(Math.min(bar.to ?? now, now) - bar.from),
    ])
    return [['At', formatDuration(bars[0] ? bars[0].from - start : 0)], ...figures]
  }
}
