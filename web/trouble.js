// @ts-check
/** Why a stream can't be had, in words that say what to do about it. */

/**
 * @typedef {'unreachable' | 'origin' | 'file' | 'unauthorized' | 'forbidden' | 'refused' | 'unavailable'
 *   | 'not-a-gateway' | 'no-body' | 'token'} TroubleReason
 */

/** What a RunStream's `error` event carries, and what its iteration and `cancel()` throw. */
export class RunStreamError extends Error {
  /**
   * @param {TroubleReason} reason
   * @param {string} message                     what happened and what to do
   * @param {{status?: number, fatal?: boolean, retryAfter?: number, cause?: unknown}} [more]
   */
  constructor(reason, message, { status, fatal = false, retryAfter, cause } = {}) {
    super(message, { cause })
    this.name = 'RunStreamError'
    this.reason = reason
    /** The HTTP status, if there was an answer. */
    this.status = status
    /** Whether the stream has given up; otherwise it goes on trying. */
    this.fatal = fatal
    /** Milliseconds the gateway wants to be left alone. */
    this.retryAfter = retryAfter
  }
}

/** What an answer that isn't a stream means.
 * @param {Response} response
 * @returns {Promise<RunStreamError>} */
export async function refusal(response) {
  const { status } = response
  const problem = await readProblem(response)
  const message = problem ?? `The gateway answered ${status} for ${response.url || 'the stream'}.`
  if (status === 401) return new RunStreamError('unauthorized', message, { status, fatal: true })
  if (status === 403) return new RunStreamError('forbidden', message, { status, fatal: true })
  if (status >= 500 || status === 408 || status === 425 || status === 429) {
    return new RunStreamError('unavailable', message, { status, retryAfter: retryAfter(response) })
  }
  if (problem === undefined) return notAGateway(response, true)
  return new RunStreamError('refused', message, { status, fatal: true })
}

/** @param {Response} response
 * @param {boolean} fatal */
export function notAGateway(response, fatal) {
  const type = response.headers.get('content-type')?.split(';')[0] || 'nothing'
  const message =
    `${response.url || 'The address'} answered ${response.status} with ${type}, which is no gateway's event stream: ` +
    'check `src`.'
  return new RunStreamError('not-a-gateway', message, { status: response.status, fatal })
}

/** @param {Response} response
 * @returns {Promise<string | undefined>} */
async function readProblem(response) {
  if (!/^application\/(problem\+)?json\b/.test(response.headers.get('content-type') ?? '')) return undefined
  try {
    const { title, detail } = await response.json()
    return [detail, title].find((text) => typeof text === 'string' && text !== '')
  } catch {
    return undefined // A body that can't be read has nothing to add to its status.
  }
}

/** @param {Response} response */
function retryAfter(response) {
  const value = response.headers.get('retry-after') ?? ''
  if (/^\d+$/.test(value)) return Number(value) * 1000
  const at = Date.parse(value)
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now())
}

/**
 * Find out why a request failed without an answer. Script is told no reason; but a `no-cors` request goes through
 * wherever somebody listens, so it tells "down" from "this origin isn't allowed".
 * @param {string} src                 the gateway's absolute address, without a slash at the end
 * @param {typeof fetch} fetch
 * @param {AbortSignal} signal
 * @returns {Promise<RunStreamError | undefined>}   undefined: the gateway is there, trying again is all there is to do
 */
export async function diagnose(src, fetch, signal) {
  const page = globalThis.location
  if (page?.protocol === 'file:') {
    const message =
      "A page opened from a file can't read from a gateway: serve the folder with `python -m http.server` and open " +
      'http://localhost:8000/.'
    return new RunStreamError('file', message, { fatal: true })
  }
  try {
    await fetch(`${src}/healthz`, { mode: 'no-cors', cache: 'no-store', credentials: 'omit', signal })
  } catch (cause) {
    return new RunStreamError('unreachable', `Gateway unreachable: nothing answers at ${src}.`, { cause })
  }
  if (!page || new URL(src).origin === page.origin) return undefined
  const message = `This origin isn't allowed by the gateway at ${src}: add \`${page.origin}\` to TOOLCAST_CORS_ORIGINS.`
  return new RunStreamError('origin', message)
}

const said = new Set()

/** Tell the console, once per page and sentence.
 * @param {RunStreamError} error */
export function complain({ message }) {
  if (said.has(message)) return
  said.add(message)
  console.error(`toolcast: ${message}`)
}
