import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { RunStream, RunStreamError } from '../../web/run-stream.js'
import {
  RUN,
  block,
  cut,
  event,
  fastClock,
  gateway,
  manualClock,
  open,
  problem,
  record,
  stream as begin,
  until,
} from './scripted-gateway.js'

const STARTED = block('7-1', event('run_started'))
const COMPLETED = block('7-2', event('run_completed'))

/** What the console was told. */
const said = []
mock.method(console, 'error', (text) => said.push(text))

function follow(t, src, options = {}) {
  const stream = new RunStream(src, RUN, { clock: fastClock(), ...options })
  t.after(() => stream.close())
  return stream
}

const ended = (stream) => until(() => stream.ended, 'the stream has ended')
const failed = (stream) => until(() => stream.error, 'trouble was told')

/** Pretends that this is a page at `href`. */
function pageAt(t, href) {
  globalThis.location = /** @type {any} */ (new URL(href))
  t.after(() => delete globalThis.location)
}

test('a refusal ends the stream with the reason the gateway gives', async (t) => {
  for (const [status, reason] of [
    [401, 'unauthorized'],
    [403, 'forbidden'],
    [400, 'refused'],
    [404, 'refused'],
  ]) {
    const detail = `No, because of ${status}.`
    const { src, requests } = await gateway(t, problem(status, detail))
    const stream = follow(t, src, { token: 'abc' })
    const told = record(stream)
    await failed(stream)
    const [error] = told.of('error')
    assert.deepStrictEqual(
      [error.reason, error.message, error.error.status, error.error.fatal],
      [reason, detail, status, true],
    )
    assert.ok(error.error instanceof RunStreamError && stream.error === error.error)
    assert.equal(stream.connection, 'failed')
    assert.deepStrictEqual(
      told.of('connection').map(({ connection }) => connection),
      ['failed'],
    )
    assert.equal(told.of('end').length, 0)
    assert.equal(said.filter((text) => text === `toolcast: ${detail}`).length, 1)
    await assert.rejects(stream[Symbol.asyncIterator]().next(), { name: 'RunStreamError', message: detail })
    assert.equal(requests.length, 1)
  }
})

test('a refusal in the middle of for await is thrown', async (t) => {
  const { src } = await gateway(t, cut(STARTED), problem(403, 'No longer.'))
  const seen = []
  await assert.rejects(
    async () => {
      for await (const { type } of follow(t, src)) seen.push(type)
    },
    { name: 'RunStreamError', message: 'No longer.' },
  )
  assert.deepStrictEqual(seen, ['run_started'])
})

test('token() is asked at each connect, and once more after a 401', async (t) => {
  const { src, requests } = await gateway(t, cut(STARTED), problem(401, 'expired'), [COMPLETED])
  let asked = 0
  const stream = follow(t, src, { token: async () => `token-${++asked}` })
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(
    requests.map(({ headers }) => headers.authorization),
    ['Bearer token-1', 'Bearer token-2', 'Bearer token-3'],
  )
  assert.equal(told.of('error').length, 0)
})

test('a second 401 is the last', async (t) => {
  const { src, requests } = await gateway(t, problem(401, 'The token has expired.'))
  const stream = follow(t, src, { token: () => 'same' })
  await failed(stream)
  assert.deepStrictEqual([stream.error.fatal, requests.length], [true, 2])
})

test('a new token function is used at the next connect, and causes none', async (t) => {
  const { src, requests } = await gateway(t, open(STARTED), [COMPLETED])
  const stream = follow(t, src, { token: () => 'old' })
  await until(() => stream.position === '7-1', 'the run has started')
  stream.token = () => 'new'
  assert.equal(requests.length, 1)
  requests[0].response.destroy()
  await ended(stream)
  assert.deepStrictEqual(
    requests.map(({ headers }) => headers.authorization),
    ['Bearer old', 'Bearer new'],
  )
})

test('a token() that throws is told and tried again', async (t) => {
  const { src } = await gateway(t, [STARTED, COMPLETED])
  let asked = 0
  const token = () => {
    if (++asked < 3) throw new Error('the session service is down')
    return 'abc'
  }
  const stream = follow(t, src, { token })
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(
    told.of('error').map(({ message }) => message),
    ['token() failed: the session service is down'],
  )
  assert.deepStrictEqual(
    told.of('connection').map(({ connection }) => connection),
    ['failed', 'live', 'closed'],
  )
})

test('headers and credentials travel', async (t) => {
  const { src, requests } = await gateway(t, [STARTED, COMPLETED])
  await ended(follow(t, src, { headers: { 'x-team': 'blue' }, credentials: 'include' }))
  assert.equal(requests[0].headers['x-team'], 'blue')
})

test('503 is told once and outlived', async (t) => {
  const { src, requests } = await gateway(
    t,
    problem(503, 'Start it: async with toolcast.'),
    problem(503, 'Start it: async with toolcast.'),
    [STARTED, COMPLETED],
  )
  const stream = follow(t, src)
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(
    told.of('error').map(({ reason, error }) => [reason, error.status, error.fatal]),
    [['unavailable', 503, false]],
  )
  assert.deepStrictEqual([requests.length, stream.error], [3, undefined])
})

test('Retry-After is kept, even by who would rather try now', async (t) => {
  const clock = manualClock()
  const { src, requests } = await gateway(t, problem(429, 'Too many streams.', { 'retry-after': '90' }), [
    STARTED,
    COMPLETED,
  ])
  const stream = follow(t, src, { clock })
  await until(() => stream.retryAt, 'the next attempt is planned')
  assert.equal(stream.retryAt - clock.now(), 90_000)
  stream.reconnect()
  clock.advance(89_999)
  assert.equal(requests.length, 1)
  clock.advance(1)
  await ended(stream)
  assert.equal(stream.retryAt, undefined)
})

test('attempts back off from one second to thirty, with jitter', async (t) => {
  for (const [random, delays] of [
    [() => 0, [1000, 2000, 4000, 8000, 15_000, 15_000]],
    [() => 1, [2000, 4000, 8000, 16_000, 30_000, 30_000]],
  ]) {
    const clock = manualClock()
    const { src } = await gateway(t, problem(503, 'Not yet.'))
    const stream = follow(t, src, { clock, random })
    const seen = []
    for (const _ of delays) {
      await until(() => stream.retryAt > clock.now(), 'the next attempt is planned')
      seen.push(stream.retryAt - clock.now())
      clock.advance(seen.at(-1))
    }
    assert.deepStrictEqual(seen, delays)
  }
})

test('retry: decides about the first reconnect, and a good minute forgives', async (t) => {
  const clock = manualClock()
  const held = []
  const hold = (response) => held.push(begin(response, ['retry: 2137\n', STARTED]))
  const { src } = await gateway(t, hold)
  const stream = follow(t, src, { clock, random: () => 0 })
  const seen = []
  for (const lived of [0, 0, 60_000, 0]) {
    await until(() => stream.connection === 'live' && held.length, 'the stream is live')
    clock.advance(lived)
    held.pop().destroy()
    await until(() => stream.retryAt, 'the next attempt is planned')
    seen.push(stream.retryAt - clock.now())
    clock.advance(seen.at(-1))
  }
  assert.deepStrictEqual(seen, [2137, 4274, 2137, 4274])
})

test('reconnect(), a tab that becomes visible, and a network that returns cut the wait short', async (t) => {
  const page = Object.assign(new EventTarget(), { visibilityState: 'hidden', baseURI: 'http://127.0.0.1/' })
  const network = new EventTarget()
  Object.assign(globalThis, {
    document: page,
    addEventListener: network.addEventListener.bind(network),
    requestAnimationFrame: () => 1,
    cancelAnimationFrame: () => {},
  })
  t.after(() => {
    for (const name of ['document', 'addEventListener', 'requestAnimationFrame', 'cancelAnimationFrame'])
      delete globalThis[name]
  })
  const clock = manualClock()
  const { src, requests } = await gateway(t, cut(STARTED), cut(), cut(), [COMPLETED])
  const stream = follow(t, src, { clock })
  const waits = () => until(() => stream.retryAt > clock.now(), 'the next attempt is planned')

  await waits()
  page.dispatchEvent(new Event('visibilitychange'))
  assert.equal(requests.length, 1, 'hidden still')
  stream.reconnect()
  await until(() => requests.length === 2, 'reconnect() connects')
  await waits()
  page.visibilityState = 'visible'
  page.dispatchEvent(new Event('visibilitychange'))
  await until(() => requests.length === 3, 'a visible tab connects')
  await waits()
  network.dispatchEvent(new Event('online'))
  await ended(stream)
})

test('40 s without a byte drop the connection, and a heartbeat keeps it', async (t) => {
  const clock = manualClock()
  const { src, requests } = await gateway(t, open(STARTED), [COMPLETED])
  let heard = ''
  const overheard = new TransformStream({
    transform(bytes, controller) {
      heard += new TextDecoder().decode(bytes)
      controller.enqueue(bytes)
    },
  })
  const overhear = async (url, init) => {
    const { status, headers, body } = await fetch(url, init)
    return new Response(overheard.readable.locked ? body : body.pipeThrough(overheard), { status, headers })
  }
  const stream = follow(t, src, { clock, fetch: overhear })
  await until(() => stream.position === '7-1', 'the run has started')
  clock.advance(39_000)
  requests[0].response.write(':hb\n')
  await until(() => heard.endsWith(':hb\n'), 'the heartbeat has arrived')
  clock.advance(39_000)
  assert.equal(stream.connection, 'live')
  clock.advance(1000)
  await until(() => stream.retryAt, 'the silent connection is dropped')
  clock.advance(2000)
  await ended(stream)
  assert.equal(requests[1].url.searchParams.get('after'), '7-1')
})

test('a gateway that never answers is dropped like a silent one', async (t) => {
  const clock = manualClock()
  const { src, requests } = await gateway(t, () => {}, [STARTED, COMPLETED])
  const stream = follow(t, src, { clock })
  await until(() => requests.length === 1, 'the request has arrived')
  clock.advance(40_000)
  await until(() => stream.retryAt, 'the next attempt is planned')
  clock.advance(2000)
  await ended(stream)
})

test('a machine that slept does not trust what looks open', async (t) => {
  let slept = 0
  const clock = manualClock()
  const drowsy = { ...clock, now: () => clock.now() + slept }
  const { src, requests } = await gateway(t, open(STARTED), [COMPLETED])
  const stream = follow(t, src, { clock: drowsy })
  await until(() => stream.position === '7-1', 'the run has started')
  stream.reconnect()
  assert.equal(stream.connection, 'live', 'it was heard just now')
  slept = 3_600_000
  stream.reconnect()
  await until(() => stream.retryAt, 'it was dropped')
  stream.reconnect()
  await ended(stream)
  assert.equal(requests.length, 2)
})

test('nobody there: told once, tried on', async (t) => {
  const { src, stop } = await gateway(t, [])
  await stop()
  const stream = follow(t, src)
  const told = record(stream)
  await failed(stream)
  const [{ reason, message, error }] = told.of('error')
  assert.deepStrictEqual(
    [reason, message, error.fatal],
    ['unreachable', `Gateway unreachable: nothing answers at ${src}.`, false],
  )
  assert.equal(stream.connection, 'failed')
  await until(() => stream.retryAt, 'another attempt is planned')
  await until(() => !stream.retryAt, 'and made')
  assert.equal(told.of('error').length, 1)
  assert.equal(said.filter((text) => text.includes(src)).length, 1)
})

test('a page of another origin learns which setting would let it in', async (t) => {
  pageAt(t, 'http://localhost:5173/chat')
  const fetch = async (url, { mode } = {}) => {
    if (mode !== 'no-cors') throw new TypeError('Failed to fetch')
    assert.equal(url, 'https://gateway.example/toolcast/healthz')
    return Response.error()
  }
  const stream = follow(t, 'https://gateway.example/toolcast', { fetch })
  await failed(stream)
  assert.deepStrictEqual([stream.error.reason, stream.error.fatal], ['origin', false])
  assert.equal(
    stream.error.message,
    "This origin isn't allowed by the gateway at https://gateway.example/toolcast: add `http://localhost:5173` to " +
      'TOOLCAST_CORS_ORIGINS.',
  )
})

test('a page of the same origin is never told that', async (t) => {
  pageAt(t, 'http://localhost:8808/')
  let failures = 0
  const fetch = async (_url, { mode } = {}) => {
    if (mode === 'no-cors') return new Response('ok')
    if (failures++ < 2) throw new TypeError('Failed to fetch')
    return new Response(null, { status: 204 })
  }
  const stream = follow(t, '', { fetch })
  const told = record(stream)
  await ended(stream)
  assert.equal(told.of('error').length, 0)
})

test('an origin that was served once is not suspected later', async (t) => {
  pageAt(t, 'http://localhost:5173/')
  const { src, requests } = await gateway(
    t,
    cut(STARTED),
    cut(),
    (_response, request) => request.socket.destroy(),
    (_response, request) => request.socket.destroy(),
    (_response, request) => request.socket.destroy(),
    [COMPLETED],
  )
  const stream = follow(t, src)
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual([told.of('error').length, requests.length], [0, 6])
})

test('a run that was followed is tried again before anybody is told', async (t) => {
  const clock = manualClock()
  const server = await gateway(t, open(STARTED))
  let attempts = 0
  const counted = (url, init) => {
    if (init.mode !== 'no-cors') attempts++
    return fetch(url, init)
  }
  const stream = follow(t, server.src, { clock, fetch: counted })
  const told = record(stream)
  await until(() => stream.connection === 'live', 'the stream is live')
  await server.stop()
  while (!stream.error) {
    await until(() => stream.error || stream.retryAt > clock.now(), 'the next attempt is planned')
    if (!stream.error) clock.advance(stream.retryAt - clock.now())
  }
  assert.ok(attempts >= 3, `told after ${attempts} attempts`)
  assert.deepStrictEqual([stream.error.reason, stream.connection], ['unreachable', 'reconnecting'])
  assert.equal(told.of('error').length, 1)
})

test('a page from a file is told to be served, and not tried again', async (t) => {
  pageAt(t, 'file:///home/ana/index.html')
  const fetch = async () => {
    throw new TypeError('Failed to fetch')
  }
  const stream = follow(t, 'http://localhost:8808', { fetch })
  await failed(stream)
  assert.deepStrictEqual(
    [stream.error.reason, stream.error.fatal, stream.connection],
    ['file', true, 'failed'],
  )
  assert.match(stream.error.message, /serve the folder with `python -m http.server`/)
})

test('a page where the gateway should be is no gateway', async (t) => {
  const html = (status) => (response) =>
    response.writeHead(status, { 'content-type': 'text/html; charset=utf-8' }).end('<!doctype html>')
  for (const status of [200, 404]) {
    const { src } = await gateway(t, html(status))
    const stream = follow(t, src)
    await failed(stream)
    assert.deepStrictEqual([stream.error.reason, stream.error.fatal], ['not-a-gateway', true])
    assert.match(stream.error.message, new RegExp(`answered ${status} with text/html.*check \`src\``))
  }
})

test('once it was followed, a stray page is not believed', async (t) => {
  const html = (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<p>Back soon')
  const { src } = await gateway(t, cut(STARTED), html, [COMPLETED])
  await ended(follow(t, src))
})

test("a fetch that can't stream is told to be replaced", async (t) => {
  const fetch = async () =>
    Object.defineProperty(new Response('', { headers: { 'content-type': 'text/event-stream' } }), 'body', {
      value: undefined,
    })
  const stream = follow(t, 'http://localhost:8808', { fetch })
  await failed(stream)
  assert.deepStrictEqual([stream.error.reason, stream.error.fatal], ['no-body', true])
})
