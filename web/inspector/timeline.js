// @ts-check
/** The timeline over the calls: a lane a call, a bar an attempt. Bars are moved by transforms, so nothing is laid out anew. */

import { formatDuration } from '../labels.js'
import { make } from '../dom.js'
import { LaneRow } from './lane-row.js'
import { ticks } from './lanes.js'

/** @typedef {import('./lanes.js').Lane} Lane @typedef {import('./lanes.js').Lanes} Lanes */

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
/** Lanes that are ready on either side of those in sight. */
const MARGIN = 4
/** Pixels that stay free under the last lane. */
const SPARE = 16

export class Timeline {
  /** Rows of the lanes in sight. @type {Map<Lane, LaneRow>} */
  #rows = new Map()
  /** Lanes that have begun where the page stands, in their order. @type {Lane[]} */
  #order = []
  #begun = new Set(this.#order)
  /** Key of the lane that Tab goes to. @type {string | undefined} */
  #current
  /** Pixels: of a lane, of the part in sight, above it. */
  #height = 24
  #sight = 0
  #top = 0
  /** @type {Lanes | undefined} */
  #lanes
  /** Milliseconds after the run's start that the axis shows. */
  #range = [0, SHORTEST]
  #zoomed = false
  #now = 0
  #drawnAt = 0
  /** Some lanes have not begun yet, where the page stands. */
  #later = false
  #width = 0
  #left = 0

  /** @param {HTMLElement} root @param {(key: string) => void} chosen */
  constructor(root, chosen) {
    this.chosen = chosen
    this.root = root
    this.reset = make('button', { class: 'link', type: 'button', hidden: '' }, 'Whole run')
    this.ticks = make('div', { class: 'plot', 'aria-hidden': 'true' })
    this.ruler = make('div', { class: 'track' })
    this.sample = make('div', { class: 'lane ruler', 'aria-hidden': 'true' }, make('span'), this.ruler)
    this.room = make('div', { class: 'room' })
    this.zoom = make('div', { class: 'zoom', hidden: '' })
    this.scroll = make('div', { class: 'scroll lanes' }, this.sample, this.room)
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
    this.scroll.addEventListener('scroll', () => {
      this.#top = this.scroll.scrollTop
      this.#draw(true)
    })
    const sized = new ResizeObserver(() => this.#measure())
    sized.observe(this.ruler)
    sized.observe(this.scroll)
  }

  #measure() {
    const track = this.ruler.getBoundingClientRect()
    const own = this.root.getBoundingClientRect()
    this.#width = track.width
    this.#height = this.sample.offsetHeight || this.#height
    this.#sight = this.scroll.clientHeight
    this.#left = this.#rtl ? own.right - track.right : track.left - own.left
    this.#draw(true)
  }

  /** Which way pixels go. */
  get #sign() {
    return this.#rtl ? -1 : 1
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
      this.#top = this.scroll.scrollTop = 0
      this.#begun = new Set()
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
    const { changed, start = 0 } = lanes
    const anew = whole || this.#later || this.#now < this.#drawnAt || [...changed].some((lane) => !this.#begun.has(lane))
    if (anew) this.#arrange(lanes)
    const x = (/** @type {number} */ at) => this.#x(at - start)
    for (const row of this.#rows.values()) {
      if (anew || row.open || changed.has(row.lane)) row.update(this.#now, x, this.#sign, whole)
    }
    changed.clear()
    this.#drawnAt = this.#now
  }

  /** Find the lanes that have begun, and show those in sight. @param {Lanes} lanes */
  #arrange(lanes) {
    const before = this.#begun.size
    const all = lanes.ordered()
    this.#order = all.filter((lane) => lane.bars.length && lane.bars[0].from <= this.#now)
    this.#begun = new Set(this.#order)
    this.#later = this.#order.length < all.length
    this.room.style.blockSize = `${this.#order.length * this.#height}px`
    // The newest lane is the one that moves.
    const follow = this.#begun.size > before && this.#order.length * this.#height > this.#sight && !this.scroll.matches(':hover, :focus-within')
    if (follow) this.#top = this.scroll.scrollTop = this.#order.length * this.#height - this.#sight
    this.#place()
  }

  /** Have rows for the lanes in sight, and for no other: a thousand would cost every frame. */
  #place() {
    const from = Math.max(0, Math.floor(this.#top / this.#height) - MARGIN)
    const to = Math.ceil((this.#top + this.#sight) / this.#height) + MARGIN
    const wanted = new Map(this.#order.slice(from, to).map((lane, i) => [lane, from + i]))
    for (const [lane, row] of this.#rows) {
      if (wanted.has(lane)) continue
      row.element.remove()
      this.#rows.delete(lane)
    }
    let place = /** @type {Element} */ (this.room)
    for (const [lane, index] of wanted) {
      let row = this.#rows.get(lane)
      if (!row) this.#rows.set(lane, (row = new LaneRow(lane)))
      row.element.style.transform = `translateY(${index * this.#height}px)`
      row.element.tabIndex = lane.key === this.#current ? 0 : -1
      if (place.nextElementSibling !== row.element) place.after(row.element)
      place = row.element
    }
    const first = this.room.nextElementSibling
    if (first instanceof HTMLElement && !this.scroll.querySelector('[tabindex="0"]')) first.tabIndex = 0
  }

  #axis() {
    const [from, to] = this.#range
    const marks = ticks(from, to, Math.max(2, Math.floor(this.#width / TICK)))
    const sign = this.#sign
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
      this.zoom.style.transform = `translateX(${this.#sign * (this.#left + Math.min(from, to))}px)`
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
    const lane = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest('[data-key]'))
    const by = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
    if (by) {
      const next = this.#order[this.#order.findIndex(({ key }) => key === lane?.dataset.key) + by]
      if (next) this.#focus(next)
    } else if (event.key === 'Enter' && lane) this.chosen(lane.dataset.key ?? '')
    else if (event.key === '+' || event.key === '=') this.#zoomTo(this.#width * 0.25, this.#width * 0.75)
    else if (event.key === '-' || event.key === '0') this.#unzoom()
    else return
    event.preventDefault()
  }

  /** @param {Lane} lane */
  #focus(lane) {
    this.#current = lane.key
    const top = this.#order.indexOf(lane) * this.#height
    const wanted = Math.min(top, Math.max(this.#top, top + this.#height - this.#sight + SPARE))
    if (wanted !== this.#top) this.#top = this.scroll.scrollTop = wanted
    this.#draw(true)
    this.#rows.get(lane)?.element.focus({ preventScroll: true })
  }

  /** Show the figures of the lane under the pointer or in focus. @param {EventTarget | null} target */
  #point(target) {
    const element = target instanceof Element ? target.closest('[data-key]') : null
    const row = [...this.#rows.values()].find((each) => each.element === element)
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
