// @ts-check
/** What both elements are: something that shows one run. Following it is RunStream's work, drawing the subclass's. */

import { Announcer, make } from './dom.js'
import { whenConfigured } from './labels.js'
import { RunStream } from './run-stream.js'
import { tick } from './ticker.js'
import { adopt } from './tokens.js'

/** @typedef {import('./describe.js').RunState} RunState */

const Base = globalThis.HTMLElement ?? /** @type {typeof HTMLElement} */ (class {})
const BESIDE_US = new URL('..', import.meta.url).href
/** A reconnection quicker than this is nobody's business. */
const LOST_AFTER = 3000
/** What a clock difference must exceed: below it is the network's delay. */
const SKEW = 500

/** @abstract */
export class RunElement extends Base {
  static observedAttributes = ['run', 'src']
  /** Rules of the subclass. */
  static css = ''

  /** @type {AbortController | undefined} */
  #life
  /** @type {AbortController | undefined} */
  #following
  /** @type {RunState | undefined} */
  #state
  /** @type {number | undefined} */
  #frame
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #losing
  /** Where the clocks stand still, if they shall: milliseconds since 1970. @type {number | undefined} */
  frozen
  /** @type {RunStream | undefined} */
  stream
  /** Milliseconds this clock is ahead of the agent's, for who sets `state` instead of `run`. */
  skew = 0
  /** When the present run was taken up, on the page's own clock. */
  since = 0

  /** `idle` has no run to follow; `lost` is reconnecting for a while, `dead` has given up. @type {'idle' | 'open' | 'lost' | 'dead'} */
  phase = 'idle'
  /** Nobody has been told of the present run yet: what is there on joining isn't news. */
  joining = true

  constructor() {
    super()
    const root = this.attachShadow({ mode: 'open' })
    this.body = make('div', { class: 'body' })
    root.append(this.body)
    this.announcer = new Announcer(root)
  }

  connectedCallback() {
    const { css } = /** @type {typeof RunElement} */ (this.constructor)
    const root = /** @type {ShadowRoot} */ (this.shadowRoot)
    if (!root.adoptedStyleSheets.length) adopt(root, css)
    this.#life = new AbortController()
    whenConfigured(() => {
      // Drawn anew in the other words, without saying it all again.
      this.joining = true
      this.refresh()
    }, this.#life.signal)
    this.#life.signal.addEventListener('abort', () => this.clock(false))
    this.#upgrade('state')
    this.#follow()
  }

  disconnectedCallback() {
    this.#life?.abort()
  }

  /** @param {string} _ @param {string | null} before @param {string | null} after */
  attributeChangedCallback(_, before, after) {
    if (before === after || !this.#life || this.#life.signal.aborted) return
    this.#state = undefined
    this.joining = true
    this.#follow()
  }

  /** The id of the run to show; absent shows nothing. */
  get run() {
    return this.getAttribute('run')
  }

  set run(run) {
    if (run === null || run === undefined) this.removeAttribute('run')
    else this.setAttribute('run', run)
  }

  /** The gateway, resolved against the page; without it, the one these modules came from. */
  get src() {
    const src = this.getAttribute('src')
    return (src ? new URL(src, document.baseURI).href : BESIDE_US).replace(/\/$/, '')
  }

  set src(src) {
    this.setAttribute('src', src)
  }

  /** What is shown. Setting it draws a saved run; with `run` as well, the stream goes on from its position. */
  get state() {
    return this.#state
  }

  set state(state) {
    const known = this.#state
    this.#state = state
    if (!known || known.run !== state?.run) this.joining = true
    this.refresh()
  }

  /** Now, in milliseconds since 1970 on the agent's clock. */
  get now() {
    const skew = this.stream?.skew ?? this.skew
    return this.frozen ?? Date.now() - (Math.abs(skew) < SKEW ? 0 : skew)
  }

  /** Draw at the next frame. */
  refresh() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined
      if (this.isConnected) this.render()
    })
  }

  /** Have `beat` called ten times a second, or no more. @param {boolean} wanted */
  clock(wanted) {
    tick(this.#beat, wanted)
  }

  #beat = () => this.beat()

  /** Show `state`. @abstract */
  render() {}

  /** Move the clocks on. @abstract */
  beat() {}

  #follow() {
    this.#following?.abort()
    clearTimeout(this.#losing)
    this.stream = undefined
    this.phase = 'idle'
    this.since = performance.now()
    this.refresh()
    const { run } = this
    if (!run) return

    this.phase = 'open'
    this.#following = new AbortController()
    const signal = AbortSignal.any([this.#following.signal, /** @type {AbortController} */ (this.#life).signal])
    try {
      this.#listen(new RunStream(this.src, run, { signal, state: this.#state }), signal)
    } catch (error) {
      // An id or address that can't be one; a stream tells the console itself about everything else.
      console.error(`toolcast: ${/** @type {Error} */ (error).message}`)
      this.#enter('dead')
      this.#tell('error', error)
    }
  }

  /** @param {RunStream} stream @param {AbortSignal} signal */
  #listen(stream, signal) {
    this.stream = stream
    /** @param {string} type @param {(event: any) => void} listener */
    const on = (type, listener) => stream.addEventListener(type, listener, { signal })
    on('state', ({ state }) => {
      this.#state = state
      this.refresh()
      this.#tell('state', state)
    })
    on('connection', () => {
      clearTimeout(this.#losing)
      const { connection } = stream
      if (connection === 'reconnecting') this.#losing = setTimeout(() => !signal.aborted && this.#enter('lost'), LOST_AFTER)
      else this.#enter(connection === 'failed' ? 'dead' : 'open')
    })
    on('end', () => this.#tell('end', stream.state))
    on('error', ({ error }) => this.#tell('error', error))
  }

  /** @param {string} type @param {unknown} detail */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }))
  }

  /** @param {'open' | 'lost' | 'dead'} phase */
  #enter(phase) {
    if (this.phase === phase) return
    this.phase = phase
    this.refresh()
  }

  /** A property that was set before the class was known would hide the accessor for good. @param {'state'} name */
  #upgrade(name) {
    if (!Object.hasOwn(this, name)) return
    const value = this[name]
    delete this[name]
    this[name] = value
  }
}
