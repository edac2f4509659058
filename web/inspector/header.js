// @ts-check
/** The header: which run, how it stands, how the page is connected; and the strip below when it isn't. */

import { icon } from '../icons.js'
import { formatDuration } from '../labels.js'
import { make, setText, swapIcon } from '../dom.js'

const STATUS = /** @type {Record<string, [icon: string, word: string]>} */ ({
  waiting: ['identified', 'Waiting'],
  running: ['running', 'Running'],
  interrupted: ['question', 'Waiting for you'],
  completed: ['completed', 'Completed'],
  failed: ['failed', 'Failed'],
  cancelled: ['cancelled', 'Stopped'],
})
/** What of a long id always stays visible at its end. */
const TAIL = 6

export class Header {
  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} strip
   * @param {object} listener
   * @param {() => void} listener.home
   * @param {() => void} listener.copyId
   * @param {() => void} listener.copyCurl
   * @param {() => void} listener.showEvents
   * @param {() => void} listener.tryNow
   */
  constructor(root, strip, listener) {
    this.strip = strip
    const home = make('a', { class: 'wordmark', href: './' }, 'toolcast')
    const back = make('button', { class: 'tool back', type: 'button', 'aria-label': 'All runs' }, icon('back'))
    this.slash = make('span', { class: 'slash', 'aria-hidden': 'true' }, '/')
    this.idStart = make('span', { class: 'id-start' })
    this.idEnd = make('span', { class: 'id-end' })
    this.id = make('button', { class: 'id mono', type: 'button' }, this.idStart, this.idEnd)
    this.pillIcon = make('span', { class: 'at' })
    this.pillText = make('span')
    this.pillTime = make('span', { class: 'text-more' })
    this.pill = make('span', { class: 'pill' }, this.pillIcon, make('span', { class: 'says' }, this.pillText, this.pillTime))
    this.liveText = make('span', { class: 'word' })
    this.latency = make('span', { class: 'latency' })
    this.live = make('span', { class: 'live' }, icon('live'), this.liveText, this.latency)
    this.panel = make('button', { class: 'link panel', type: 'button', hidden: '' }, 'Events')
    this.curl = make('button', { class: 'link', type: 'button' }, 'Copy as curl')
    const more = make('button', { class: 'tool menu', type: 'button', 'aria-label': 'More', popovertarget: 'more' }, icon('more'))
    const menu = make('div', { id: 'more', popover: '' })
    const copyId = make('button', { type: 'button' }, 'Copy run id')
    const copyCurl = make('button', { type: 'button' }, 'Copy as curl')
    menu.append(copyId, copyCurl)
    this.ofRun = [this.slash, this.id, this.pill, this.live, this.curl, more]
    root.append(back, home, this.slash, this.id, this.pill, this.live, this.panel, this.curl, more, menu)

    home.addEventListener('click', (event) => {
      event.preventDefault()
      listener.home()
    })
    back.addEventListener('click', listener.home)
    this.panel.addEventListener('click', listener.showEvents)
    for (const [button, act] of /** @type {const} */ ([[this.id, listener.copyId], [copyId, listener.copyId], [this.curl, listener.copyCurl], [copyCurl, listener.copyCurl]])) {
      button.addEventListener('click', () => {
        act()
        menu.hidePopover?.()
      })
    }
    this.next = make('span')
    this.now = make('button', { type: 'button' }, 'Try now')
    this.now.addEventListener('click', listener.tryNow)
    strip.append(this.next, this.now)
  }

  /** @param {string | undefined} run */
  name(run) {
    for (const part of this.ofRun) part.hidden = !run
    if (!run) return
    const cut = run.length > 2 * TAIL ? run.length - TAIL : run.length
    setText(this.idStart, run.slice(0, cut))
    setText(this.idEnd, run.slice(cut))
    this.id.setAttribute('aria-label', `Copy run id ${run}`)
    this.id.title = run
  }

  /** @param {string} status @param {number | undefined} ms */
  status(status, ms) {
    const [name, word] = STATUS[status] ?? STATUS.running
    this.pill.dataset.status = status
    swapIcon(this.pillIcon, name)
    // A text that is pushed aside would count as a layout shift, a new one doesn't.
    if (this.pillText.textContent !== word) this.pillTime.textContent = ''
    setText(this.pillText, word)
    setText(this.pillTime, ms === undefined || status === 'interrupted' ? '' : ` · ${formatDuration(ms)}`)
  }

  /** @param {string} word @param {boolean} on @param {number | undefined} latency milliseconds */
  connection(word, on, latency) {
    setText(this.liveText, word)
    this.live.toggleAttribute('data-on', on)
    setText(this.latency, on && latency !== undefined ? `· ${formatDuration(Math.max(1, latency))}` : '')
  }

  /** @param {string | undefined} text nothing hides the strip @param {number} [retryAt] milliseconds since 1970 */
  trouble(text, retryAt) {
    this.strip.hidden = !text
    if (!text) return
    const seconds = retryAt === undefined ? undefined : Math.max(0, Math.ceil((retryAt - Date.now()) / 1000))
    setText(this.next, seconds === undefined ? text : seconds ? `${text} Next try in ${seconds} s ·` : `${text} Trying …`)
    this.now.hidden = !seconds
  }
}
