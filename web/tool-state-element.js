// @ts-check
/** `<tool-state>`: what the agent is doing, in exactly one line, or nothing. */

import { describeRun } from './describe.js'
import { make, setText, swapIcon } from './dom.js'
import { formatDuration, label } from './labels.js'
import { RunElement } from './run-element.js'

/** @typedef {import('./describe.js').Shown} Shown */
/** @typedef {import('./run-state-element.js').RunStateElement} RunStateElement */

const RULES = `
:host { display: inline-flex; flex-direction: column; vertical-align: bottom; max-inline-size: 100%; min-inline-size: 0; line-height: 1.6; font-variant-numeric: tabular-nums; text-align: start }
:host([list]) { display: flex }
.body { min-inline-size: 0 }
.line { display: flex; align-items: baseline; gap: .5em; min-block-size: 1.6em; max-inline-size: 100%; white-space: pre; transition: opacity var(--_open) }
.line .icon { inline-size: 1em; block-size: 1em }
.at, .chevron { align-self: center }
.at { display: flex; flex: none }
.text { display: flex; flex: 0 1 auto; min-inline-size: 0; color: var(--_ink) }
.title, .detail, .error { flex: 0 1 auto; min-inline-size: 0; overflow: hidden; text-overflow: ellipsis }
.title { animation: tc-fade var(--_fade) }
@keyframes tc-fade { from { opacity: 0 } }
[data-asks] .title { flex: none }
[data-tone="quiet"], .detail { color: var(--_ink-2) }
[data-tone="done"], [data-tone="done"] .detail { color: var(--_ink-3) }
.stale .text { color: var(--_ink-2) }
.stale .detail { color: var(--_ink-3) }
.error { color: var(--_bad) }
.more { flex: none; font-size: .8em; line-height: 1.5; padding-inline: .5em; border-radius: 1em; background: var(--_select); color: var(--_ink-2) }
.time { flex: none; font-size: .9em; color: var(--_ink-3) }
.line .button { block-size: auto; line-height: 1.5; padding-inline: .75em; font-size: .93em }
@media (pointer: coarse) { .line .button { padding-block: .5em } }
.chevron { display: flex; border-radius: 3px; padding: 2px; margin: -2px }
.chevron .icon { transition: transform var(--_open) }
.chevron[aria-expanded="true"] .icon { transform: rotate(90deg) }
:dir(rtl) .chevron[aria-expanded="false"] .icon { transform: scaleX(-1) }
.faded { opacity: 0 }
.empty { visibility: hidden }
:host(:state(empty):not([reserve])) { position: absolute; inline-size: 0; block-size: 0; overflow: hidden }
run-state { margin-block-start: 4px }
`

/** A title is readable for this long, so quick tools don't flicker. */
const HOLD = 500
/** An open stream that is silent for this long is an agent that is starting. */
const STARTING_AFTER = 1000
/** How long "Used 3 tools" stands before `done="hide"` fades it, and the fade itself. */
const DONE_SHOWN = 2500
const FADE = 240

export class ToolStateElement extends RunElement {
  static css = RULES

  #shown = ''
  #shownSince = 0
  #doneSince = 0
  /** @type {RunStateElement | undefined} */
  #list

  #icon = make('span', { class: 'at', part: 'icon' })
  #title = make('span', { class: 'title', part: 'title' })
  #detail = make('span', { class: 'detail', part: 'detail' })
  #error = make('span', { class: 'error', part: 'error' })
  #text = make('span', { class: 'text' }, this.#title, this.#detail, this.#error)
  #more = make('span', { class: 'more', part: 'more', hidden: '' })
  #time = make('span', { class: 'time', part: 'time', 'aria-hidden': 'true' })
  #review = make('button', { class: 'button', part: 'review', type: 'button', hidden: '' })
  #chevron = make('button', { class: 'chevron', part: 'chevron', type: 'button', 'aria-expanded': 'false', hidden: '' })
  #line = make('div', { class: 'line empty', part: 'line' })

  #internals = this.attachInternals()

  constructor() {
    super()
    swapIcon(this.#chevron, 'chevron')
    this.#line.append(this.#icon, this.#text, this.#more, this.#time, this.#review, this.#chevron)
    this.body.append(this.#line)
    this.#review.addEventListener('click', () => {
      if (this.hasAttribute('list')) this.#toggle(true)
      else this.dispatchEvent(new CustomEvent('review', { detail: { run: this.state?.run, call: this.#question } }))
    })
    this.#chevron.addEventListener('click', () => this.#toggle(!this.#open))
  }

  /** @type {import('./describe.js').Call | undefined} */
  #question

  get #open() {
    return this.#chevron.getAttribute('aria-expanded') === 'true'
  }

  render() {
    const at = performance.now()
    const { state } = this
    const shown = this.#choose(at)
    // Whatever replaces a title waits until that has been readable; the clock's beat comes back here.
    const held = shown && this.#shown && shown.title !== this.#shown && !this.joining && at - this.#shownSince < HOLD
    if (!held) this.#draw(shown, at)
    const live = this.phase !== 'lost' && this.phase !== 'dead' && (this.run || state) && (!state || state.status === 'running' || state.status === 'waiting')
    this.clock(Boolean(held || live || (shown?.ended && this.#fades && !this.#line.classList.contains('empty'))))
    if (this.#list) this.#list.state = state
    if (state) this.joining = false
  }

  beat() {
    this.render()
  }

  get #fades() {
    return this.getAttribute('done') === 'hide'
  }

  /** @param {number} at @returns {Shown | undefined} */
  #choose(at) {
    const { state, phase } = this
    if (!this.run && !state) return undefined
    const ended = state && ['completed', 'failed', 'cancelled'].includes(state.status)
    if (phase === 'dead' && !ended) return { icon: 'cancelled', tone: 'done', title: label('unavailable') }
    if (state && state.status !== 'waiting') return describeRun(state, this.now)
    if (this.stream?.ended || at - this.since < STARTING_AFTER) return undefined
    return { icon: 'running', tone: 'quiet', title: label('starting') }
  }

  /** @param {Shown | undefined} shown @param {number} at */
  #draw(shown, at) {
    const line = this.#line
    if (!shown?.ended) this.#doneSince = 0
    else if (!this.#doneSince) this.#doneSince = this.joining ? -DONE_SHOWN - FADE : at
    const age = this.#fades && shown?.ended ? at - this.#doneSince : 0
    line.classList.toggle('faded', age > DONE_SHOWN)
    const empty = !shown || age > DONE_SHOWN + FADE
    line.classList.toggle('empty', empty)
    // Out of the flow rather than gone, so that its announcements are still heard.
    this.#internals.states[empty ? 'add' : 'delete']('empty')
    if (!shown) {
      this.#shown = ''
      return
    }

    const stale = this.phase === 'lost' && !shown.ended
    this.body.classList.toggle('stale', stale)
    swapIcon(this.#icon, shown.icon)
    this.#retitle(shown, at)
    this.#text.dataset.tone = shown.tone
    this.#text.toggleAttribute('data-asks', shown.icon === 'question')
    const detail = !stale ? shown.detail : [shown.question && shown.detail, label('reconnecting')].filter(Boolean).join(' · ')
    setText(this.#detail, detail ? ` · ${detail}` : '')
    setText(this.#error, shown.error ? ` — ${shown.error}` : '')
    this.#more.hidden = !shown.more
    setText(this.#more, shown.more ? label('more', { n: shown.more }) : '')
    const elapsed = stale ? undefined : shown.elapsed
    this.#time.hidden = elapsed === undefined
    setText(this.#time, elapsed === undefined ? '' : formatDuration(elapsed))
    this.#question = shown.question
    this.#review.hidden = shown.icon !== 'question'
    setText(this.#review, label('review'))
    this.#chevron.hidden = !this.hasAttribute('list')
    this.#chevron.setAttribute('aria-label', label('show_calls'))
  }

  /** @param {Shown} shown @param {number} at */
  #retitle(shown, at) {
    if (shown.title === this.#shown) return
    // A new node, so that its animation begins anew.
    const title = make('span', { class: 'title', part: 'title' })
    if (shown.tool) title.append(make('slot', { name: `title-${shown.tool}` }, shown.title))
    else title.append(shown.title)
    this.#title.replaceWith(title)
    this.#title = title
    if (!this.joining) {
      const urgent = shown.icon === 'question' || shown.icon === 'failed'
      this.announcer.say([shown.title, shown.detail, shown.error].filter(Boolean).join(', '), urgent)
    }
    this.#shown = shown.title
    this.#shownSince = at
  }

  /** @param {boolean} open */
  #toggle(open) {
    if (open && !this.#list) {
      this.#list = /** @type {RunStateElement} */ (document.createElement('run-state'))
      this.#list.part.add('list')
      this.body.append(this.#list)
    }
    if (this.#list) {
      this.#list.hidden = !open
      this.#list.state = this.state
    }
    this.#chevron.setAttribute('aria-expanded', String(open))
  }
}
