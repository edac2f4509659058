// @ts-check
/** A source that plays events from memory, for tests and component galleries: what Connection is for a gateway. */

import { NOWHERE, fold, isEnded } from './fold.js'

/** @typedef {import('./fold.js').RunEvent} RunEvent */
/** @typedef {import('./connection.js').Reader} Reader */
/** @typedef {import('./connection.js').Source} Source */

/** @implements {Source} */
export class Playback {
  /** @type {import('./connection.js').ConnectionStatus} */
  status = 'connecting'
  retryAt = undefined
  skew = 0
  /** @type {import('./connection.js').Token | undefined} */
  token

  #events
  /** @type {(Reader & {exhausted?: () => void}) | undefined} */
  #reader

  /**
   * @param {Iterable<RunEvent & {id?: string}> | AsyncIterable<RunEvent & {id?: string}>} events
   * @param {import('./fold.js').RunState} state
   */
  constructor(events, state) {
    this.#events = events
    this.state = state
  }

  /** @param {Reader & {exhausted?: () => void}} reader */
  attach(reader) {
    this.#reader = reader
    queueMicrotask(() => this.#play())
  }

  detach() {
    this.#reader = undefined
  }

  wake() {}

  async #play() {
    if (isEnded(this.state)) return this.#reader?.ended(this.state.status)
    this.status = 'live'
    this.#reader?.statusChanged()
    for await (const { id, ...event } of this.#events) {
      if (!this.#reader) return
      const state = fold(this.state, id ?? next(this.state.position), event)
      if (state === this.state) continue
      this.state = state
      this.#reader.receive(state.position, event, state)
      if (isEnded(state) && event.type !== 'snapshot') return this.#reader?.ended(state.status)
    }
    // A run that was left in the middle stays as it is.
    this.#reader?.exhausted?.()
  }
}

/** @param {string} position */
function next(position) {
  if (position === NOWHERE) return '1-1'
  const [epoch, seq] = position.split('-')
  return `${epoch}-${BigInt(seq) + 1n}`
}
