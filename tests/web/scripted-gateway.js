// A real HTTP server that does what a test tells it, request by request; and clocks a test can move.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'

export const RUN = 'run_8f2c'
export const TIME = '2026-11-30T19:47:18.123Z'

/** The envelope of an event. */
export const event = (type, more = {}) => ({ type, run: RUN, time: TIME, ...more })
export const call = (key, type, data) =>
  event(type, { call: { key, name: 'look', title: 'Looking…', attempt: 1 }, data })
/** The control event for a state at `position`. */
export const snapshot = (reason, position, state = {}) =>
  event('snapshot', { data: { reason, run: RUN, position, status: 'running', calls: [], ...state } })

/** One block of an event stream. */
export const block = (position, { ...event }) =>
  `id: ${position}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`

/**
 * Starts a server and stops it with the test `t`. Each stream request is answered by the next of `answers`, the last
 * one again and again: `(response, request, url) => …`, or blocks to send before the body is ended.
 */
export async function gateway(t, ...answers) {
  const requests = []
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '', 'http://gateway')
    if (url.pathname === '/healthz') return response.end('ok')
    const at = requests.push({ method: request.method, url, headers: request.headers, request, response }) - 1
    const answer = answers[Math.min(at, answers.length - 1)]
    if (typeof answer === 'function') return answer(response, request, url)
    stream(response, answer).end()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const stop = () => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  }
  t.after(stop)
  const address = server.address()
  return { src: `http://127.0.0.1:${address.port}`, requests, stop }
}

/** Begins an event stream and writes `blocks`. */
export function stream(response, blocks = []) {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store, no-transform' })
  response.write(':ok\nretry: 20\n')
  for (const each of blocks) response.write(each)
  return response
}

/** An answer that keeps the body open behind `blocks`. */
export const open =
  (...blocks) =>
  (response) =>
    void stream(response, blocks)

/** An answer that cuts the connection behind `blocks`. */
export const cut =
  (...blocks) =>
  (response) =>
    stream(response).write(blocks.join('') || ':\n', () => response.destroy())

/** A refusal. */
export const problem =
  (status, detail, headers = {}) =>
  (response) => {
    response.writeHead(status, { 'content-type': 'application/problem+json', ...headers })
    response.end(JSON.stringify({ title: 'No', detail, status }))
  }

const LONGEST_DELAY = 30_000
const DIAGNOSIS = 5_000

/** A clock on which pauses between attempts are short. What guards against a dead peer is as long as ever: a busy
 * machine must not look like one. */
export const fastClock = (factor = 50) => ({
  now: () => Date.parse(TIME) + performance.now(),
  setTimeout: (callback, ms) =>
    setTimeout(callback, ms > LONGEST_DELAY || ms === DIAGNOSIS ? ms : ms / factor),
  clearTimeout,
})

/** A clock that stands still until it is moved. */
export function manualClock() {
  let now = Date.parse(TIME)
  let last = 0
  const timers = new Map()
  return {
    now: () => now,
    setTimeout(callback, ms) {
      timers.set(++last, { at: now + ms, callback })
      return last
    },
    clearTimeout: (timer) => timers.delete(timer),
    advance(ms) {
      const until = now + ms
      for (;;) {
        const due = [...timers].filter(([, { at }]) => at <= until).sort(([, a], [, b]) => a.at - b.at)[0]
        if (!due) break
        timers.delete(due[0])
        now = Math.max(now, due[1].at)
        due[1].callback()
      }
      now = until
    },
    get pending() {
      return timers.size
    },
  }
}

/** Waits until `condition` holds, for at most twenty seconds. */
export async function until(condition, description) {
  const deadline = performance.now() + 20_000
  while (!condition()) {
    assert.ok(performance.now() < deadline, `within twenty seconds: ${description}`)
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

/** Everything `stream` dispatches, as it comes. */
export function record(stream, ...more) {
  const seen = []
  for (const type of ['event', 'state', 'connection', 'error', 'end', ...more]) {
    stream.addEventListener(type, (given) => seen.push(given))
  }
  return {
    seen,
    of: (type) => seen.filter((given) => given.type === type),
    get positions() {
      return seen.filter(({ type }) => type === 'event').map(({ position }) => position)
    },
  }
}
