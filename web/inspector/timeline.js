// @ts-check
/** The timeline over the calls: a lane a call, a bar an attempt. Bars are moved by transforms, so nothing is laid out anew. */

import { formatDuration } from '../labels.js'
import { make, setText } from '../dom.js'
import { ticks } from './lanes.js'

/** @typedef {import('./lanes.js').Lane} Lane @typedef {import('./lanes.js').Bar} Bar @typedef {import('./lanes.js').Lanes} Lanes */

/** How much further the axis reaches than the run, so that it is drawn anew seldom. */
const AHEAD = 1.25
const SHORTEST = 4000
/** A mark and its label need this many pixels. */
const TICK = 64
/** Lanes there is room for while more may come: a timeline that grew would push the calls down. */
const ROOM = 7
const FEWEST = 5
/** A pointer that moves less is clicking. */
const DRAG = 4
const SMALLEST_ZOOM = 20
const WORDS = /** @type {Record<string, string>} */ ({
  identified: 'Prepared', running: 'Running', waiting: 'Waited', completed: 'Ran', failed: 'Failed after', cancelled: 'Stopped after', denied: 'Refused after',
})

export class Timeline {
  /** @type {Map<string, LaneRow>} */
  #rows = new Map()
  /** @type {Lanes | undefined} */
  #lanes
  /** Milliseconds after the run's start that the axis shows. */
  #range = [0, SHORTEST]
  #zoomed = false
  #now = 0
  #width = 0
  #left = 0

  /** @param {HTMLElement} root @param {(key: string) => void} chosen */
  constructor(root, chosen) {
    this.chosen = chosen
    this.root = root
    this.reset = make('button', { class: 'link', type: 'button', hidden: '' }, 'Whole run')
    this.ticks = make('div', { class: 'plot', 'aria-hidden': 'true' })
    this.ruler = make('div', { class: 'track' })
    this.zoom = make('div', { class: 'zoom', hidden: '' })
    this.scroll = make('div', { class: 'scroll lanes' }, make('div', { class: 'lane ruler', 'aria-hidden': 'true' }, make('span'), this.ruler))
    this.plot = make('div', { class: 'plot' }, this.zoom)
    this.tip = make('div', { id: 'tip', hidden: '' })
    root.append(this.ticks, make('div', { class: 'axis' }, this.reset), this.scroll, this.plot, this.tip)
    this.reset.addEventListener('click', () => this.#unzoom())
    this.scroll.addEventListener('dblclick', () => this.#unzoom())
    this.scroll.addEventListener('pointerdown', (event) => this.#press(event))
    this.scroll.addEventListener('keydown', (event) => this.#key(event))
    this.scroll.addEventListener('pointerover', (event) => this.#point(event.target))
    this.scroll.addEventListener('focusin', (event) => this.#point(event.target))
    for (const type of ['pointerleave', 'focusout', 'scroll']) this.scroll.addEventListener(type, () => this.#point(null))
    new ResizeObserver(() => this.#measure()).observe(this.ruler)
  }

  #measure() {
    const track = this.ruler.getBoundingClientRect()
    const own = this.root.getBoundingClientRect()
    this.#width = track.width
    this.#left = this.#rtl ? own.right - track.right : track.left - own.left
    this.#draw(true)
  }

  get #rtl() {
    return this.root.matches(':dir(rtl)')
  }

  /**
   * @param {Lanes} lanes
   * @param {number} now milliseconds since 1970: where an open bar ends; what comes later isn't drawn
   */
  show(lanes, now) {
    const fresh = lanes !== this.#lanes
    this.#lanes = lanes
    this.#now = now
    if (fresh) {
      this.#zoomed = false
      this.#range = [0, SHORTEST]
      this.reset.hidden = true
      const room = Math.max(lanes.end === undefined ? ROOM : FEWEST, lanes.lanes.size)
      this.root.style.setProperty('--lanes', String(room))
    }
    this.#draw(this.#stretch(fresh))
  }

  /** Make room for the run's time. @param {boolean} fresh @returns {boolean} whether the axis changed */
  #stretch(fresh) {
    const { start, end } = /** @type {Lanes} */ (this.#lanes)
    if (start === undefined || this.#zoomed) return fresh
    const length = (end ?? this.#now) - start
    if (!fresh && length <= this.#range[1]) return false
    const to = Math.max(end === undefined ? SHORTEST : 100, length * (end === undefined ? AHEAD : 1.02))
    const changed = fresh || to !== this.#range[1]
    this.#range = [0, to]
    return changed
  }

  /** @param {number} at milliseconds after the start @returns {number} pixels */
  #x(at) {
    const [from, to] = this.#range
    return ((at - from) / (to - from)) * this.#width
  }

  /** @param {boolean} whole the axis too */
  #draw(whole) {
    const lanes = this.#lanes
    if (!lanes || !this.#width) return
    if (whole) this.#axis()
    const start = lanes.start ?? 0
    const sign = this.#rtl ? -1 : 1
    const known = new Set()
    let place = /** @type {Element | null} */ (this.scroll.firstElementChild)
    let added
    for (const lane of lanes.ordered()) {
      if (!lane.bars.length || lane.bars[0].from > this.#now) continue
      known.add(lane.key)
      let row = this.#rows.get(lane.key)
      if (!row) {
        this.#rows.set(lane.key, (row = new LaneRow(lane.key)))
        added = row
      }
      row.update(lane, this.#now, (at) => this.#x(at - start), sign, whole)
      if (place?.nextElementSibling !== row.element) place?.after(row.element)
      place = row.element
    }
    for (const [key, row] of this.#rows) {
      if (known.has(key)) continue
      row.element.remove()
      this.#rows.delete(key)
    }
    const first = this.#rows.values().next().value
    if (first && !this.scroll.querySelector('[tabindex="0"]')) first.element.tabIndex = 0
    // The newest lane is the one that moves.
    if (added && !this.scroll.matches(':hover, :focus-within')) added.element.scrollIntoView({ block: 'nearest' })
  }

  #axis() {
    const [from, to] = this.#range
    const marks = ticks(from, to, Math.max(2, Math.floor(this.#width / TICK)))
    const sign = this.#rtl ? -1 : 1
    this.ticks.replaceChildren(...marks.map((at) => {
      const tick = make('span', { class: 'tick' }, at === 0 ? '0 s' : formatDuration(at).replace(/[.,]0 /, ' '))
      tick.style.transform = `translateX(${sign * (this.#left + this.#x(at))}px)`
      return tick
    }))
  }

  /** Move the clocks on. @param {number} now */
  beat(now) {
    this.#now = now
    if (this.#lanes) this.#draw(this.#stretch(false))
  }

  /** @param {PointerEvent} event */
  #press(event) {
    if (event.button || !this.#width) return
    const box = this.ruler.getBoundingClientRect()
    /** @param {number} x @returns {number} pixels from the track's start */
    const along = (x) => Math.min(box.width, Math.max(0, this.#rtl ? box.right - x : x - box.left))
    const from = along(event.clientX)
    const inTrack = this.#rtl ? event.clientX < box.right : event.clientX > box.left
    const done = new AbortController()
    const { signal } = done
    let to = from
    addEventListener('pointermove', (move) => {
      if (!inTrack || event.pointerType === 'touch') return
      to = along(move.clientX)
      this.zoom.hidden = Math.abs(to - from) < DRAG
      this.zoom.style.inlineSize = `${Math.abs(to - from)}px`
      this.zoom.style.transform = `translateX(${(this.#rtl ? -1 : 1) * (this.#left + Math.min(from, to))}px)`
    }, { signal })
    addEventListener('pointerup', () => {
      done.abort()
      this.zoom.hidden = true
      const lane = /** @type {Element} */ (event.target).closest('[data-key]')
      if (Math.abs(to - from) >= DRAG) this.#zoomTo(Math.min(from, to), Math.max(from, to))
      else if (lane instanceof HTMLElement) this.chosen(lane.dataset.key ?? '')
    }, { signal })
    addEventListener('pointercancel', () => {
      done.abort()
      this.zoom.hidden = true
    }, { signal })
  }

  /** @param {number} from pixels @param {number} to */
  #zoomTo(from, to) {
    const [low, high] = this.#range
    const each = (high - low) / this.#width
    if ((to - from) * each < SMALLEST_ZOOM) return
    this.#range = [low + from * each, low + to * each]
    this.#zoomed = true
    this.reset.hidden = false
    this.#draw(true)
  }

  #unzoom() {
    this.#zoomed = false
    this.reset.hidden = true
    this.#range = [0, SHORTEST]
    this.#stretch(true)
    this.#draw(true)
  }

  /** Arrows go from lane to lane; plus, minus and zero zoom. @param {KeyboardEvent} event */
  #key(event) {
    const lane = event.target instanceof HTMLElement ? event.target.closest('[data-key]') : null
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const next = event.key === 'ArrowDown' ? lane?.nextElementSibling : lane?.previousElementSibling
      if (!(next instanceof HTMLElement) || !next.dataset.key) return
      if (lane instanceof HTMLElement) lane.tabIndex = -1
      next.tabIndex = 0
      next.focus()
    } else if (event.key === 'Enter' && lane instanceof HTMLElement) this.chosen(lane.dataset.key ?? '')
    else if (event.key === '+' || event.key === '=') this.#zoomTo(this.#width * 0.25, this.#width * 0.75)
    else if (event.key === '-' || event.key === '0') this.#unzoom()
    else return
    event.preventDefault()
  }

  /** Show the figures of the lane under the pointer or in focus. @param {EventTarget | null} target */
  #point(target) {
    const element = target instanceof Element ? target.closest('[data-key]') : null
    const row = element instanceof HTMLElement ? this.#rows.get(element.dataset.key ?? '') : undefined
    const start = this.#lanes?.start
    this.tip.hidden = !row || start === undefined
    if (!row || start === undefined) return
    const figures = row.figures(start, this.#now).flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)])
    this.tip.replaceChildren(make('strong', {}, row.who.textContent ?? ''), make('dl', {}, ...figures))
    const lane = row.element.getBoundingClientRect()
    const bar = (row.bars.at(-1) ?? row.element).getBoundingClientRect()
    const own = this.tip.getBoundingClientRect()
    const x = Math.min(Math.max(8, this.#rtl ? bar.right - own.width : bar.left), innerWidth - own.width - 8)
    const y = lane.bottom + own.height + 8 > innerHeight ? lane.top - own.height - 4 : lane.bottom + 4
    this.tip.style.transform = `translate(${x}px, ${y}px)`
  }
}

class LaneRow {
  /** @type {Lane | undefined} */
  #lane
  /** @type {HTMLElement[]} */
  bars = []
  /** A line at the end of what runs. @type {HTMLElement | undefined} */
  #line
  /** What tells a failed bar from a completed one without its colour. @type {Map<number, HTMLElement>} */
  #crosses = new Map()

  /** @param {string} key */
  constructor(key) {
    this.who = make('span', { class: 'who' })
    this.track = make('span', { class: 'track' })
    this.spoken = make('span', { class: 'sr' })
    this.element = make('button', { class: 'lane', type: 'button', tabindex: '-1', 'data-key': key }, this.who, this.track, this.spoken)
  }

  /**
   * @param {Lane} lane
   * @param {number} now
   * @param {(at: number) => number} x
   * @param {number} sign
   * @param {boolean} whole the scale has changed
   */
  update(lane, now, x, sign, whole) {
    this.#lane = lane
    setText(this.who, lane.title)
    this.who.style.setProperty('--depth', String(lane.depth))
    const shown = lane.bars.filter((bar) => bar.from <= now)
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
    const bars = this.#lane?.bars ?? []
    /** @type {[string, string][]} */
    const figures = bars.filter((bar) => bar.from <= now).map((bar) => [
      bar.attempt && bar.attempt > 1 && bar.kind !== 'identified' ? `${WORDS[bar.kind]} (try ${bar.attempt})` : WORDS[bar.kind],
      formatDuration(Math.min(bar.to ?? now, now) - bar.from),
    ])
    return [['At', formatDuration(bars[0] ? bars[0].from - start : 0)], ...figures]
  }
}
