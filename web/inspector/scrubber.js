// @ts-check
/** The footer: where in the run the page stands, and how it gets elsewhere. */

import { make, setText, swapIcon } from '../dom.js'

export class Scrubber {
  /**
   * @param {HTMLElement} root
   * @param {object} listener
   * @param {(count: number | undefined) => void} listener.moved to after so many events; undefined follows the head
   * @param {() => void} listener.toggled pause or play
   */
  constructor(root, listener) {
    this.toggle = make('button', { class: 'tool', type: 'button' })
    this.range = /** @type {HTMLInputElement} */ (make('input', { type: 'range', min: '0', max: '0', step: '1', 'aria-label': 'Position' }))
    this.count = make('span', { class: 'count mono' })
    this.live = make('button', { class: 'link', type: 'button' })
    root.append(this.toggle, this.range, this.count, this.live)
    this.range.addEventListener('input', () => listener.moved(Number(this.range.value)))
    this.toggle.addEventListener('click', listener.toggled)
    this.live.addEventListener('click', () => listener.moved(undefined))
  }

  /**
   * @param {object} place
   * @param {number} place.count events shown
   * @param {number} place.length events there are
   * @param {boolean} place.past not at the head
   * @param {boolean} place.moving playing, or following
   * @param {boolean} place.ended
   * @param {string} [place.type] of the last event shown
   */
  show({ count, length, past, moving, ended, type }) {
    this.range.max = String(length)
    this.range.value = String(count)
    this.range.disabled = length === 0
    this.range.style.setProperty('--fill', `${length ? (count / length) * 100 : 0}%`)
    this.range.setAttribute('aria-valuetext', `${count} of ${length}${type ? `, ${type}` : ''}`)
    setText(this.count, past ? `${count} of ${length}` : `${count} / ${length}`)
    swapIcon(this.toggle, moving ? 'pause' : 'play')
    this.toggle.setAttribute('aria-label', moving ? 'Pause' : 'Play')
    setText(this.live, past ? `Back to ${ended ? 'the end' : 'live'}` : ended ? 'Ended' : 'Live')
    this.live.classList.toggle('past', past)
    this.live.disabled = !past
    this.live.setAttribute('aria-pressed', String(!past))
  }
}
