// @ts-check
/**
 * A run as it happens, in a browser, a worker, Node ≥ 20 or Deno: `new RunStream('http://localhost:8808', run)`.
 * No dependency. How it connects and resumes stands in `connection.js`, what a state is in `fold.js`.
 */

import { Connection, sharedConnection } from './connection.js'
import { NOWHERE, waiting } from './fold.js'
import { nextFrame, systemClock } from './frame.js'
import { Playback } from './playback.js'
import { RunStreamError, refusal } from './trouble.js'

export { RunStreamError } from './trouble.js'

/** @typedef {import('./fold.js').RunState} RunState */
/** @typedef {import('./fold.js').RunEvent} RunEvent */
/** @typedef {import('./connection.js').ConnectionStatus} ConnectionStatus */
/** @typedef {import('./connection.js').Source} Source */
/** @typedef {import('./connection.js').Token} Token */
/** @typedef {import('./frame.js').Clock} Clock */

/**
 * @typedef {object} RunStreamOptions
 * @property {'snapshot' | 'start' | 'now'} [from]  where to join: at a snapshot (default), with every past event, or
 *   with future ones only. Only the default shares its connection
 * @property {RunState} [state]         a saved state, shown first; the stream goes on from its position, and a run that
 *   had ended needs no connection
 * @property {Token} [token]            a bearer token, or a function that gives one, asked at each connect
 * @property {HeadersInit} [headers]    more headers; across origins they cost a preflight
 * @property {RequestCredentials} [credentials]  'include' sends cookies across origins
 * @property {typeof fetch} [fetch]     one that streams, where the platform's doesn't
 * @property {AbortSignal} [signal]     closes the stream
 * @property {boolean} [background]     keep the connection in a hidden tab (as yet it is always kept)
 * @property {Clock} [clock]            for tests
 * @property {() => number} [random]    for tests
 */

const RUN_ID = /^[A-Za-z0-9_][A-Za-z0-9._~-]{0,127}$/
const ID_RULE = 'use 1 to 128 of the characters A-Z a-z 0-9 . _ ~ - and begin with a letter, a digit or _'
/** Names that say something about the stream: an event of the run that is called so is only told as `event`. */
const OURS = new Set(['state', 'event', 'connection', 'error', 'end'])
/** Events that wait for a slow `for await`; beyond that a snapshot takes their place. */
const BACKLOG = 10_000
/** Passes a source of one's own into the constructor. */
const SOURCE = Symbol('source')

/**
 * A run id nobody can guess: `prefix.` and 128 random bits. Works without a secure context, too.
 * @param {string} [prefix]             whose run it is: 'user-42'
 */
export function newRunId(prefix) {
  const bits = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  )
  const id = (prefix === undefined ? '' : `${prefix}.`) + bits.join('')
  if (!RUN_ID.test(id)) throw new TypeError(`prefix ${JSON.stringify(prefix)} makes no run id: ${ID_RULE}`)
  return id
}

/** What a RunStream dispatches; which members it has depends on its type, see RunStream. */
export class RunStreamEvent extends Event {
  /** The envelope. @type {RunEvent | undefined} */
  event
  /** Where the envelope stands. @type {string | undefined} */
  position
  /** @type {RunState | undefined} */
  state
  /** @type {ConnectionStatus | undefined} */
  connection
  /** @type {RunStreamError | undefined} */
  error
  /** @type {string | undefined} */
  reason
  /** @type {string | undefined} */
  message

  /** @param {string} type
   * @param {Partial<RunStreamEvent>} members */
  constructor(type, members) {
    super(type)
    Object.assign(this, members)
  }
}

/**
 * Follows one run. Dispatches, in this order where several are due:
 *
 * - any event of the run by its name (`tool_progress`, `snapshot`, …, `x_yours`), and each one as `event` as well:
 *   `.event` is the envelope, `.position` where it stands. Each comes once, in order, over any number of reconnects.
 * - `state`: the fold changed; `.state`. At most once a frame in a visible page, every 100 ms elsewhere.
 * - `connection`: the property of that name changed; `.connection`.
 * - `error`: `.reason` and `.message` say why nothing can be had, `.error` is the RunStreamError with `.status` and
 *   `.fatal`. A fatal one is the end of the stream, else it goes on trying; the console is told, too, once.
 * - `end`: the run is over, and with it the stream; `.reason` is `completed`, `failed`, `cancelled`, or `absent`,
 *   `expired`, `deleted` if there is nothing (left) to read.
 *
 * `for await (const event of stream)` gives the envelopes from now on, `id` (the position) among their members; it
 * ends with the stream, throws a fatal RunStreamError, and closes the stream when it is left early. If it falls 10,000
 * events behind, a `snapshot` with reason `lagged` takes their place.
 */
export class RunStream extends EventTarget {
  #run
  #base
  #options
  /** @type {Source} */
  #source
  #clock
  #state
  /** @type {string | undefined} */
  #ended
  /** @type {RunStreamError | undefined} */
  #error
  #over = false
  /** Takes the `state` event that is due back. @type {(() => void) | undefined} */
  #due
  /** @type {Set<Iteration>} */
  #iterations = new Set()
  #closeOnAbort = () => this.close()

  #reader = {
    /** @type {import('./connection.js').Reader['receive']} */
    receive: (position, event, state) => {
      this.#state = state
      this.#due ??= nextFrame(() => this.#showState(), this.#clock)
      for (const iteration of this.#iterations) iteration.push(position, event)
      const { type } = event
      if (typeof type === 'string' && !OURS.has(type)) this.#dispatch(type, { event, position })
      this.#dispatch('event', { event, position })
    },
    statusChanged: () => {
      if (this.connection === 'live') this.#error = undefined
      if (this.connection !== 'closed') this.#dispatch('connection', { connection: this.connection })
    },
    /** @param {RunStreamError} error */
    failed: (error) => {
      this.#error = error
      if (error.fatal) this.#finish(error)
      this.#dispatch('error', { error, reason: error.reason, message: error.message })
    },
    /** @param {string} reason */
    ended: (reason) => {
      this.#ended = reason
      this.#finish()
      this.#dispatch('connection', { connection: this.connection })
      this.#dispatch('end', { reason, state: this.#state })
    },
    exhausted: () => {
      for (const iteration of this.#iterations) iteration.finish()
    },
  }

  /**
   * @param {string | URL} src          the gateway: absolute, or resolved against the page ('' is its own origin)
   * @param {string} run                throws TypeError if that is no run id
   * @param {RunStreamOptions} [options]
   */
  constructor(src, run, options = {}) {
    super()
    if (typeof run !== 'string' || !RUN_ID.test(run)) {
      throw new TypeError(`run id ${JSON.stringify(run)} is not usable: ${ID_RULE}`)
    }
    this.#run = run
    this.#options = options
    this.#clock = options.clock ?? systemClock
    const given = /** @type {Record<symbol, Source | undefined>} */ (options)[SOURCE]
    this.#base = given ? '' : resolve(src)
    this.#source = given ?? this.#connect()
    const { state } = this.#source
    this.#state = state.position === NOWHERE && options.state?.run === run ? options.state : state
    if (options.signal?.aborted) {
      this.#over = true
      return
    }
    options.signal?.addEventListener('abort', this.#closeOnAbort, { once: true })
    this.#source.attach(this.#reader)
    // Who joins a connection that others have gets what the gateway would have said.
    if (state.position !== NOWHERE && state !== options.state) queueMicrotask(() => this.#join())
  }

  /**
   * Plays events instead of following a run: for tests and component galleries. Events may carry their position as
   * `id`, as NDJSON and iteration give them; else they are numbered.
   * @param {Iterable<RunEvent & {id?: string}> | AsyncIterable<RunEvent & {id?: string}>} events
   * @param {RunStreamOptions & {run?: string}} [options]  `run`: default is that of the first event of an array
   */
  static of(events, { run, ...options } = {}) {
    const id = run ?? (Array.isArray(events) ? events[0]?.run : undefined) ?? 'playback'
    const source = new Playback(events, options.state ?? waiting(id))
    return new RunStream('', id, /** @type {RunStreamOptions} */ ({ ...options, [SOURCE]: source }))
  }

  /** The run's id. */
  get run() {
    return this.#run
  }

  /** The fold of all that has arrived; the same object until something arrives. Read-only. @returns {RunState} */
  get state() {
    return this.#state
  }

  /** Where the stream stands, `<epoch>-<seq>`; `0-0` before the first event. */
  get position() {
    return this.#state.position
  }

  /**
   * - `connecting`: the first attempt is under way
   * - `live`: the gateway answers (a run nobody has published yet is live, with `state.status` `waiting`)
   * - `reconnecting`: was live, will be again
   * - `failed`: nothing can be had, `error` says why; it goes on trying unless `error.fatal`
   * - `closed`: the run is over, or `close()` was called
   * @returns {ConnectionStatus}
   */
  get connection() {
    if (this.#ended !== undefined) return 'closed'
    if (this.#over) return this.#error?.fatal ? 'failed' : 'closed'
    return this.#source.status
  }

  /** How events travel. */
  get transport() {
    return 'stream'
  }

  /** Why the run is over, as in the `end` event; undefined while it isn't. */
  get ended() {
    return this.#ended
  }

  /** The last trouble, until the connection is live again. @returns {RunStreamError | undefined} */
  get error() {
    return this.#error
  }

  /** When the next attempt is due, in milliseconds since 1970, while waiting for it. */
  get retryAt() {
    return this.#over ? undefined : this.#source.retryAt
  }

  /** Milliseconds this clock is ahead of the agent's, as far as events tell: subtract it from now before comparing with
   * an event's time. */
  get skew() {
    return this.#source.skew
  }

  /** What is asked for a token at the next connect; giving a new function never reconnects. */
  get token() {
    return this.#source.token
  }

  set token(token) {
    this.#source.token = token
  }

  /** Try now what is due later. */
  reconnect() {
    if (!this.#over) this.#source.wake()
  }

  /** Stop following. The connection goes with its last stream, a second later. */
  close() {
    if (this.#over) return
    this.#finish()
    this.#dispatch('connection', { connection: this.connection })
  }

  /**
   * Ask the agent to stop. Resolves when the request is in the run's log, which is not yet the run's end.
   * @param {{reason?: string}} [why]
   * @throws {RunStreamError} if the gateway refuses or can't be reached
   */
  async cancel({ reason } = {}) {
    const { headers: more, credentials, fetch: given } = this.#options
    const headers = new Headers(more)
    headers.set('content-type', 'application/json')
    const token = typeof this.token === 'function' ? await this.token() : this.token
    if (token) headers.set('authorization', `Bearer ${token}`)
    const body = JSON.stringify(reason === undefined ? {} : { reason })
    const url = `${this.#base}/runs/${encodeURIComponent(this.#run)}/cancel`
    /** @type {Response} */
    let response
    try {
      response = await (given ?? fetch)(url, { method: 'POST', headers, credentials, body })
    } catch (cause) {
      throw new RunStreamError(
        'unreachable',
        `The run was not cancelled: nothing answers at ${this.#base}.`,
        { cause },
      )
    }
    if (!response.ok) throw await refusal(response)
  }

  /** @returns {AsyncGenerator<RunEvent & {id: string}, void, void>} */
  async *[Symbol.asyncIterator]() {
    const iteration = new Iteration(() => snapshotOf(this.#state, 'lagged', this.#clock.now() - this.skew))
    if (this.#over) iteration.finish(this.#error?.fatal ? this.#error : undefined)
    this.#iterations.add(iteration)
    try {
      for (;;) {
        const batch = await iteration.next()
        if (!batch) return
        yield* batch
      }
    } finally {
      this.#iterations.delete(iteration)
      this.close()
    }
  }

  #connect() {
    const {
      from = 'snapshot',
      token,
      headers,
      credentials,
      fetch: given,
      clock,
      random,
      state,
    } = this.#options
    const options = {
      src: this.#base,
      run: this.#run,
      from,
      token,
      headers,
      credentials,
      // Called as a method of something else, the browser's refuses.
      fetch: given ?? ((/** @type {any} */ input, /** @type {any} */ init) => fetch(input, init)),
      clock: this.#clock,
      random: random ?? Math.random,
      state: state?.run === this.#run ? state : undefined,
    }
    if (from !== 'snapshot') return new Connection(options)
    const sent = [...new Headers(headers)]
    const who = [identity(token), identity(given), identity(clock), identity(random)]
    return sharedConnection(JSON.stringify([this.#base, this.#run, credentials, sent, who]), options)
  }

  #join() {
    if (this.#over || this.#due || this.#state.position === NOWHERE) return
    const event = snapshotOf(this.#state, 'join', this.#clock.now() - this.skew)
    this.#reader.receive(this.#state.position, event, this.#state)
  }

  #showState() {
    this.#due?.()
    this.#due = undefined
    this.#dispatch('state', { state: this.#state })
  }

  /** @param {RunStreamError} [error] */
  #finish(error) {
    if (this.#over) return
    this.#over = true
    this.#options.signal?.removeEventListener('abort', this.#closeOnAbort)
    this.#source.detach(this.#reader)
    if (this.#due) this.#showState()
    for (const iteration of this.#iterations) iteration.finish(error)
  }

  /** @param {string} type
   * @param {Partial<RunStreamEvent>} members */
  #dispatch(type, members) {
    this.dispatchEvent(new RunStreamEvent(type, members))
  }
}

/** Events on their way to one `for await`. */
class Iteration {
  /** @type {(RunEvent & {id: string})[]} */
  #backlog = []
  #finished = false
  /** @type {RunStreamError | undefined} */
  #error
  /** @type {(() => void) | undefined} */
  #wake
  #snapshot

  /** @param {() => RunEvent} snapshot */
  constructor(snapshot) {
    this.#snapshot = snapshot
  }

  /** @param {string} id
   * @param {RunEvent} event */
  push(id, event) {
    if (this.#finished) return
    if (this.#backlog.length >= BACKLOG) {
      event = this.#snapshot()
      this.#backlog = []
    }
    this.#backlog.push({ id, ...event })
    this.#wake?.()
  }

  /** @param {RunStreamError} [error] */
  finish(error) {
    this.#finished = true
    this.#error ??= error
    this.#wake?.()
  }

  /** What has come, at least one; nothing at the end. */
  async next() {
    while (!this.#backlog.length) {
      if (this.#error) throw this.#error
      if (this.#finished) return undefined
      await new Promise((/** @type {(_?: unknown) => void} */ resolve) => (this.#wake = resolve))
    }
    const batch = this.#backlog
    this.#backlog = []
    return batch
  }
}

/** The control event that hands over a state.
 * @param {RunState} state
 * @param {string} reason
 * @param {number} now                  milliseconds since 1970, on the agent's clock
 * @returns {RunEvent} */
function snapshotOf(state, reason, now) {
  return { type: 'snapshot', run: state.run, time: new Date(now).toISOString(), data: { reason, ...state } }
}

/** @param {string | URL} src */
function resolve(src) {
  const page = globalThis.document?.baseURI ?? globalThis.location?.href
  const address = String(src).replace(/\/+$/, '') + '/'
  try {
    return new URL(address, page).href.replace(/\/$/, '')
  } catch (cause) {
    throw new TypeError(`src ${JSON.stringify(src)} is no address; outside of a page it must be absolute`, {
      cause,
    })
  }
}

/** @type {WeakMap<object, number>} */
const identities = new WeakMap()
let known = 0

/** What two equal options have in common: their value, or that they are the same function.
 * @param {any} value */
function identity(value) {
  if (typeof value !== 'function' && (typeof value !== 'object' || value === null)) return value
  if (!identities.has(value)) identities.set(value, ++known)
  return identities.get(value)
}
