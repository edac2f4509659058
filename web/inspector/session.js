// @ts-check
/** One run under inspection: all its events, and where among them the page stands. */

import { RunStream } from '../run-stream.js'
import { History } from './history.js'
import { Lanes } from './lanes.js'

/** A past that is still arriving isn't drawn: it would look like news. Milliseconds without an event end it. */
const QUIET = 60
const LONGEST_PAST = 1000
/** Nothing is shown of loading that is quicker. */
const SLOW = 300
/** The longest pause that a replay keeps. */
const PAUSE = 1000
/** Browsers refuse more than 100 changes of the address in 30 s. */
const ADDRESS = 400

export class Session {
  lanes = new Lanes()
  /** The past has arrived. */
  ready = false
  /** It takes long to arrive. */
  slow = false
  /** How many events are shown; undefined follows the head. @type {number | undefined} */
  #cursor
  #playing = false
  /** Since when the connection is lost. @type {number | undefined} */
  lostAt
  #life = new AbortController()
  /** @type {Record<string, ReturnType<typeof setTimeout>>} */
  #timers = {}

  /**
   * @param {string} base address of the gateway
   * @param {string} run
   * @param {string | undefined} position where to stand at first
   * @param {() => void} changed
   */
  constructor(base, run, position, changed) {
    this.run = run
    this.changed = changed
    this.history = new History(run)
    const { signal } = this.#life
    this.stream = new RunStream(base, run, { from: 'start', signal })
    /** @param {string} type @param {(event: any) => void} listener */
    const on = (type, listener) => this.stream.addEventListener(type, listener, { signal })
    const settled = () => this.#settle(position)
    on('event', ({ event, position: at }) => {
      this.history.push(at, event)
      this.lanes.push(event)
      if (this.ready) changed()
      else this.#later('quiet', settled, QUIET)
    })
    on('connection', () => {
      const { connection } = this.stream
      this.lostAt = connection === 'reconnecting' || connection === 'failed' ? this.lostAt ?? Date.now() : undefined
      // A run nobody has published says nothing at all.
      if (connection === 'live' && !this.ready) this.#later('quiet', settled, 2 * SLOW)
      changed()
    })
    on('end', settled)
    on('error', settled)
    this.#later('slow', () => {
      this.slow = true
      changed()
    }, SLOW)
    this.#later('longest', () => this.history.length && settled(), LONGEST_PAST)
  }

  /** @param {string} name @param {() => void} what @param {number} ms */
  #later(name, what, ms) {
    clearTimeout(this.#timers[name])
    this.#timers[name] = setTimeout(what, ms)
  }

  /** @param {string | undefined} position */
  #settle(position) {
    if (!this.ready && position) this.#cursor = this.history.countAt(position)
    if (this.#cursor === this.history.length && this.ended) this.#cursor = undefined
    this.ready = true
    this.changed()
  }

  get ended() {
    return this.stream.ended !== undefined
  }

  get past() {
    return this.#cursor !== undefined
  }

  /** Playing, or following the head. */
  get moving() {
    return this.#playing || (!this.past && !this.ended)
  }

  get count() {
    return this.#cursor ?? this.history.length
  }

  /** The RunState where the page stands. @returns {import('../fold.js').RunState} */
  get state() {
    return this.history.at(this.count)
  }

  /** The time of the last event shown, if the page stands in the past. @returns {number | undefined} */
  get pastTime() {
    if (!this.past) return undefined
    const { entries } = this.history
    return Date.parse((entries[this.count - 1] ?? entries[0])?.event.time)
  }

  /** @param {number | undefined} count of events to show; undefined follows the head */
  move(count) {
    this.#playing = false
    this.#go(count)
  }

  /** Pause where it stands, or play from there; a run that has ended plays from its start. */
  toggle() {
    if (this.moving) {
      this.#playing = false
      this.#go(this.count)
      return
    }

    this.#playing = true
    this.#go(this.past ? this.count : 0)
  }

  /** @param {number | undefined} count */
  #go(count) {
    const { length } = this.history
    // The end of a run that is over is no past.
    if (count !== undefined && count >= length && (this.ended || this.#playing)) count = undefined
    this.#cursor = count
    if (count === undefined) this.#playing = false
    clearTimeout(this.#timers.play)
    if (this.#playing) this.#later('play', () => this.#go(this.count + 1), this.#gap())
    this.#later('address', () => this.#write(), ADDRESS)
    this.changed()
  }

  /** Milliseconds until the next event, as it was. */
  #gap() {
    const { entries } = this.history
    const [last, next] = [entries[this.count - 1], entries[this.count]]
    if (!last || !next) return 0
    return Math.min(PAUSE, Math.max(0, Date.parse(next.event.time) - Date.parse(last.event.time)))
  }

  /** Let the address say where the page stands. */
  #write() {
    const position = this.past && !this.#playing ? this.history.entries[this.count - 1]?.position : undefined
    const query = new URLSearchParams({ run: this.run, ...(position ? { at: position } : {}) })
    history.replaceState(null, '', `?${query}`)
  }

  close() {
    this.#life.abort()
    Object.values(this.#timers).forEach(clearTimeout)
  }
}
