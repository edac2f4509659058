// @ts-check
/**
 * One run of one gateway, followed to its end: connect, read, resume. Whoever shows the same run reads along.
 *
 * Only a terminal event, a snapshot that says there is nothing, a 204, or a refusal ends it; the end of a body never
 * does, since a proxy may end a body at any time (contract §4).
 */

import { NOWHERE, fold, isEnded, waiting } from './fold.js'
import { SSEParser } from './sse-parser.js'
import { RunStreamError, complain, diagnose, notAGateway, refusal } from './trouble.js'

/** @typedef {import('./fold.js').RunState} RunState */
/** @typedef {import('./fold.js').RunEvent} RunEvent */
/** @typedef {import('./frame.js').Clock} Clock */
/** @typedef {string | (() => string | undefined | Promise<string | undefined>)} Token */
/** @typedef {'connecting' | 'live' | 'reconnecting' | 'failed' | 'closed'} ConnectionStatus */

/**
 * @typedef {object} Reader
 * @property {(position: string, event: RunEvent, state: RunState) => void} receive
 * @property {() => void} statusChanged
 * @property {(error: RunStreamError) => void} failed
 * @property {(reason: string) => void} ended
 *
 * @typedef {object} Source             what a RunStream reads from
 * @property {RunState} state
 * @property {ConnectionStatus} status
 * @property {number | undefined} retryAt
 * @property {number} skew
 * @property {Token | undefined} token
 * @property {(reader: Reader) => void} attach
 * @property {(reader: Reader) => void} detach
 * @property {() => void} wake
 *
 * @typedef {object} ConnectionOptions
 * @property {string} src               absolute, without a slash at the end
 * @property {string} run
 * @property {'snapshot' | 'start' | 'now'} from
 * @property {RunState} [state]         a saved state to go on from
 * @property {Token} [token]
 * @property {HeadersInit} [headers]
 * @property {RequestCredentials} [credentials]
 * @property {typeof fetch} fetch
 * @property {Clock} clock
 * @property {() => number} random
 * @property {() => void} [onover]      nobody reads any more, or there is nothing more to read
 */

/** Silence after which a connection is dead: the gateway says something every 15 s. */
const SILENCE = 40_000
const SHORTEST_DELAY = 1_000
const LONGEST_DELAY = 30_000
/** A connection that held this long forgives the failures before it. */
const GOOD = 60_000
/** How long a connection waits for a next reader after the last one left: a page that re-renders comes back at once. */
const LINGER = 1_000
/** Failures in a row of a run that was once followed before anybody is told. */
const PATIENCE = 3
/** Milliseconds to find out why nothing answers. */
const DIAGNOSIS = 5_000
const NOTHING_THERE = new Set(['absent', 'expired', 'deleted'])

/** @implements {Source} */
export class Connection {
  /** @type {RunState} */
  state
  /** @type {ConnectionStatus} */
  status = 'connecting'
  /** When the next attempt is due, in milliseconds since 1970, while waiting for it. @type {number | undefined} */
  retryAt
  /** Milliseconds by which this clock is ahead of the agent's, at most: the least seen between an event's time and
   * its arrival. 0 before the first event. */
  skew = 0

  #options
  /** @type {Token | undefined} */
  token
  /** @type {Set<Reader>} */
  #readers = new Set()
  #life = new AbortController()
  #begun = false
  #wasLive = false
  #failures = 0
  /** @type {number | undefined} */
  #retry
  #tokenRefused = false
  #skewKnown = false
  /** The trouble of this outage that was told. @type {string | undefined} */
  #told
  #lastByte = 0
  /** @type {AbortController | undefined} */
  #attempt
  /** Ends the pause before the next attempt. @type {(() => void) | undefined} */
  #endPause
  #mayHurry = false
  /** @type {any} */
  #linger

  /** @param {ConnectionOptions} options */
  constructor(options) {
    this.#options = options
    this.token = options.token
    this.state = options.state ?? waiting(options.run)
  }

  /** Let `reader` read along; the first one starts it.
   * @param {Reader} reader */
  attach(reader) {
    this.#readers.add(reader)
    this.#options.clock.clearTimeout(this.#linger)
    if (this.#begun) return
    this.#begun = true
    const signal = this.#life.signal
    const page = globalThis.document
    page?.addEventListener('visibilitychange', () => page.visibilityState === 'visible' && this.wake(), {
      signal,
    })
    globalThis.addEventListener?.('online', () => this.wake(), { signal })
    // Not before the caller has had a chance to add listeners.
    queueMicrotask(() => this.#follow())
  }

  /** Leave; after the last one the connection lingers for a moment.
   * @param {Reader} reader */
  detach(reader) {
    if (!this.#readers.delete(reader) || this.#readers.size || this.#over) return
    this.#linger = this.#options.clock.setTimeout(() => this.#finish('closed'), LINGER)
    // Under Node a released connection must not keep the process.
    this.#linger?.unref?.()
  }

  /** Try now instead of later; and if the machine slept, don't trust what looks open. */
  wake() {
    if (this.#mayHurry) this.#endPause?.()
    if (this.#attempt && this.#options.clock.now() - this.#lastByte >= SILENCE) this.#attempt.abort()
  }

  get #over() {
    return this.#life.signal.aborted
  }

  async #follow() {
    if (isEnded(this.state)) this.#end(this.state.status)
    while (!this.#over) {
      const opened = this.#options.clock.now()
      const attempt = (this.#attempt = new AbortController())
      const abort = () => attempt.abort()
      this.#life.signal.addEventListener('abort', abort)
      let trouble
      try {
        trouble = await this.#read(attempt.signal)
      } catch (cause) {
        // A cut connection and one that was never made look alike here; what it was is found out below.
        trouble = cause instanceof RunStreamError ? cause : undefined
        if (!trouble && !this.#over && this.status !== 'live') this.#findOutWhy()
      } finally {
        this.#life.signal.removeEventListener('abort', abort)
        this.#attempt = undefined
        attempt.abort()
      }
      if (this.#over) return
      if (trouble?.fatal) return this.#refused(trouble)

      const wasLive = this.status === 'live'
      if (wasLive && this.#options.clock.now() - opened >= GOOD) this.#failures = 0
      this.#failures++
      if (wasLive) this.#setStatus('reconnecting')
      if (trouble?.reason === 'unauthorized' || trouble?.reason === 'forbidden') continue
      if (trouble) this.#tell(trouble)
      await this.#pause(trouble?.retryAfter)
    }
  }

  /** One attempt, from request to the end of its body. Returns what kept it from being a stream, if anything did.
   * @param {AbortSignal} signal
   * @returns {Promise<RunStreamError | undefined>} */
  async #read(signal) {
    const { clock, fetch, credentials } = this.#options
    this.#lastByte = clock.now()
    const stopWatching = this.#watch()
    try {
      const headers = new Headers(this.#options.headers)
      headers.set('accept', 'text/event-stream')
      const token = await this.#ask()
      if (token) headers.set('authorization', `Bearer ${token}`)

      const response = await fetch(this.#url(), { headers, credentials, signal, cache: 'no-store' })
      if (response.status === 204) {
        this.#end(isEnded(this.state) ? this.state.status : 'absent')
        return undefined
      }
      if (!response.ok) {
        const trouble = await refusal(response)
        // A token may have expired while it was on its way: one more is asked for.
        if ((response.status === 401 || response.status === 403) && this.#mayAskAgain()) trouble.fatal = false
        return trouble
      }
      if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
        return notAGateway(response, !this.#wasLive)
      }
      if (!response.body?.getReader) {
        const message = "This platform's fetch can't stream: pass one that can as `fetch` (`expo/fetch`)."
        return new RunStreamError('no-body', message, { fatal: true })
      }
      this.#tokenRefused = false
      this.#told = undefined
      this.#wasLive = true
      this.#setStatus('live')
      await this.#readBody(response.body.getReader())
      return undefined
    } finally {
      stopWatching()
    }
  }

  /** @param {ReadableStreamDefaultReader<Uint8Array>} body */
  async #readBody(body) {
    const parser = new SSEParser()
    for (;;) {
      const { done, value } = await body.read()
      if (this.#over) return
      if (done) {
        if (isEnded(this.state)) this.#end(this.state.status)
        return
      }
      this.#lastByte = this.#options.clock.now()
      const messages = parser.push(value)
      this.#retry = parser.retry ?? this.#retry
      for (const { data, id } of messages) {
        this.#receive(id, data)
        if (this.#over) return
      }
    }
  }

  /** @param {string} position
   * @param {string} data */
  #receive(position, data) {
    /** @type {RunEvent} */
    let event
    try {
      event = JSON.parse(data)
    } catch {
      return // Not an envelope: nothing a reader could know what to do with.
    }
    const state = fold(this.state, position, event)
    if (state === this.state) return
    this.state = state
    this.#compareClocks(event.time)
    for (const reader of [...this.#readers]) reader.receive(position, event, state)

    if (event.type !== 'snapshot') {
      if (isEnded(state)) this.#end(state.status)
    } else if (NOTHING_THERE.has(event.data?.reason)) this.#end(event.data?.reason)
  }

  /** @param {string} time */
  #compareClocks(time) {
    const difference = this.#options.clock.now() - Date.parse(time)
    if (Number.isNaN(difference)) return
    this.skew = this.#skewKnown ? Math.min(this.skew, difference) : difference
    this.#skewKnown = true
  }

  #url() {
    const { src, run, from } = this.#options
    // In the query: a header of ours would cost a preflight.
    const start = this.state.position === NOWHERE ? `from=${from}` : `after=${this.state.position}`
    return `${src}/runs/${encodeURIComponent(run)}/events?${start}`
  }

  async #ask() {
    if (typeof this.token !== 'function') return this.token
    try {
      return await this.token()
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw new RunStreamError('token', `token() failed: ${why}`, { cause })
    }
  }

  #mayAskAgain() {
    const again = typeof this.token === 'function' && !this.#tokenRefused
    this.#tokenRefused = true
    return again
  }

  /** Cut the attempt when nothing has come for too long; returns what stops watching. */
  #watch() {
    const { clock } = this.#options
    /** @type {any} */
    let timer
    const check = () => {
      const left = this.#lastByte + SILENCE - clock.now()
      if (left <= 0) this.#attempt?.abort()
      else timer = clock.setTimeout(check, left)
    }
    check()
    return () => clock.clearTimeout(timer)
  }

  /** @param {number | undefined} atLeast   milliseconds a gateway asked for; nothing shortens them */
  async #pause(atLeast) {
    const { clock, random } = this.#options
    const base = Math.max(SHORTEST_DELAY, this.#retry ?? 0)
    const spread = Math.min(LONGEST_DELAY, base * 2 ** this.#failures)
    // The gateway has jittered its `retry` already; and it knows best how soon somebody will be there again.
    const calm = this.#failures === 1 && this.#retry !== undefined
    const delay = Math.max(
      calm ? Math.min(this.#retry ?? 0, LONGEST_DELAY) : (spread * (1 + random())) / 2,
      atLeast ?? 0,
    )

    this.retryAt = clock.now() + delay
    /** @type {any} */
    let timer
    await new Promise((/** @type {(_?: unknown) => void} */ resolve) => {
      timer = clock.setTimeout(resolve, delay)
      this.#endPause = resolve
      this.#mayHurry = atLeast === undefined
    })
    clock.clearTimeout(timer)
    this.#endPause = undefined
    this.retryAt = undefined
  }

  async #findOutWhy() {
    const { src, fetch, clock } = this.#options
    const attempt = new AbortController()
    const timer = clock.setTimeout(() => attempt.abort(), DIAGNOSIS)
    const trouble = await diagnose(src, fetch, attempt.signal)
    clock.clearTimeout(timer)
    if (!trouble || this.#over || this.status === 'live') return
    // An origin that was served once is allowed: what failed then is on its way back.
    if (trouble.reason === 'origin' && this.#wasLive) return
    if (trouble.fatal) this.#refused(trouble)
    else this.#tell(trouble)
  }

  /** @param {RunStreamError} trouble */
  #tell(trouble) {
    const early = this.#wasLive && this.#failures < PATIENCE
    if (early || trouble.reason === this.#told) return
    this.#told = trouble.reason
    complain(trouble)
    if (!this.#wasLive) this.#setStatus('failed')
    for (const reader of [...this.#readers]) reader.failed(trouble)
  }

  /** @param {RunStreamError} trouble */
  #refused(trouble) {
    complain(trouble)
    const readers = [...this.#readers]
    this.#finish('failed')
    for (const reader of readers) reader.failed(trouble)
  }

  /** @param {string} reason */
  #end(reason) {
    if (this.#over) return
    const readers = [...this.#readers]
    this.#finish('closed')
    for (const reader of readers) reader.ended(reason)
  }

  /** @param {'closed' | 'failed'} status */
  #finish(status) {
    if (this.#over) return
    this.#life.abort()
    this.#endPause?.()
    this.#options.onover?.()
    this.#setStatus(status)
    this.#readers.clear()
  }

  /** @param {ConnectionStatus} status */
  #setStatus(status) {
    if (status === this.status) return
    this.status = status
    for (const reader of [...this.#readers]) reader.statusChanged()
  }
}

/** @type {Map<string, Connection>} */
const shared = new Map()

/** The connection that everybody with the same `key` shares.
 * @param {string} key
 * @param {ConnectionOptions} options
 * @returns {Connection} */
export function sharedConnection(key, options) {
  const known = shared.get(key)
  if (known) return known
  const connection = new Connection({ ...options, onover: () => shared.delete(key) })
  shared.set(key, connection)
  return connection
}
