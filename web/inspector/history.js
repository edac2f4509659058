// @ts-check
/** All events of a run in their order, and the state after any of them. No DOM. */

import { fold, waiting } from '../fold.js'

/**
 * @typedef {{ position: string, event: import('../fold.js').RunEvent }} Entry
 * @typedef {import('../fold.js').RunState} RunState
 */

/** Entries between two states that are kept: a jump folds at most so many. */
const EVERY = 64

export class History {
  /** @type {Entry[]} */
  entries = []
  /** State before entry `i * EVERY`. @type {RunState[]} */
  #kept

  /** @param {string} run */
  constructor(run) {
    this.run = run
    this.#kept = [waiting(run)]
    this.last = /** @type {{ count: number, state: RunState }} */ ({ count: 0, state: this.#kept[0] })
  }

  /** @param {string} position @param {import('../fold.js').RunEvent} event */
  push(position, event) {
    this.entries.push({ position, event })
  }

  get length() {
    return this.entries.length
  }

  /**
   * The state after the first `count` entries.
   *
   * @param {number} count
   * @returns {RunState}
   */
  at(count) {
    // Mostly the next one is wanted; going back starts at the state kept before it.
    let { count: n, state } = this.last
    const kept = Math.min(Math.floor(count / EVERY), this.#kept.length - 1)
    if (n > count || kept * EVERY > n) [n, state] = [kept * EVERY, this.#kept[kept]]
    for (; n < count; n++) {
      if (n % EVERY === 0) this.#kept[n / EVERY] ??= state
      const { position, event } = this.entries[n]
      state = fold(state, position, event)
    }
    this.last = { count, state }
    return state
  }

  /** How many entries there are up to and with a position, or nothing if it isn't among them. @param {string} position */
  countAt(position) {
    const index = this.entries.findIndex((entry) => entry.position === position)
    return index < 0 ? undefined : index + 1
  }
}
