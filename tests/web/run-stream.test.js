import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RunStream, RunStreamError, newRunId } from '../../web/run-stream.js'
import {
  RUN,
  block,
  call,
  cut,
  event,
  fastClock,
  gateway,
  manualClock,
  open,
  record,
  snapshot,
  stream as begin,
  until,
} from './scripted-gateway.js'

const LOG = [
  ['7-1', event('run_started', { data: { title: 'Which modules?' } })],
  ['7-2', call('a', 'tool_call_identified')],
  ['7-3', call('a', 'tool_execution_started')],
  ['7-4', call('a', 'tool_progress', { progress: 1, total: 3 })],
  ['7-5', event('x_citation', { data: { url: 'https://example.org' } })],
  ['7-6', call('a', 'tool_execution_completed', { result_summary: '“9 items”', duration_ms: 12 })],
  ['7-7', event('run_completed')],
]
const BLOCKS = LOG.map(([position, each]) => block(position, each))
const POSITIONS = LOG.map(([position]) => position)

/** The blocks behind the position a request names. */
const rest = (url) => BLOCKS.slice(POSITIONS.indexOf(url.searchParams.get('after')) + 1)
const serveRest = (response, _request, url) => begin(response, rest(url)).end()

/** A stream on a fast clock that ends with the test. */
function follow(t, src, options = {}) {
  const stream = new RunStream(src, RUN, { clock: fastClock(), ...options })
  t.after(() => stream.close())
  return stream
}

const ended = (stream) => until(() => stream.ended, 'the stream has ended')

test('a run is followed to its end', async (t) => {
  const { src, requests } = await gateway(t, BLOCKS)
  const stream = follow(t, src)
  assert.deepStrictEqual(
    [stream.state.status, stream.position, stream.connection],
    ['waiting', '0-0', 'connecting'],
  )
  const told = record(stream, 'tool_progress', 'x_citation')
  await ended(stream)

  assert.deepStrictEqual(told.positions, POSITIONS)
  assert.deepStrictEqual(
    told.of('event').map(({ event }) => event),
    LOG.map(([, each]) => JSON.parse(JSON.stringify(each))),
  )
  assert.deepStrictEqual(
    told.of('tool_progress').map(({ event, position }) => [event.data.progress, position]),
    [[1, '7-4']],
  )
  assert.deepStrictEqual(
    told.of('x_citation').map(({ position }) => position),
    ['7-5'],
  )
  assert.deepStrictEqual(
    told.of('connection').map(({ connection }) => connection),
    ['live', 'closed'],
  )
  assert.deepStrictEqual(told.of('error'), [])
  assert.deepStrictEqual(
    told.seen.slice(-3).map(({ type }) => type),
    ['state', 'connection', 'end'],
  )
  assert.equal(told.of('end')[0].reason, 'completed')
  const { state } = stream
  assert.equal(told.of('state').at(-1).state, state)
  assert.deepStrictEqual(
    [state.status, state.title, state.calls[0].state],
    ['completed', 'Which modules?', 'completed'],
  )
  assert.deepStrictEqual([stream.position, stream.connection, stream.ended], ['7-7', 'closed', 'completed'])
  assert.equal(requests.length, 1)
})

test('without a token nothing in the request needs a preflight', async (t) => {
  const { src, requests } = await gateway(t, cut(...BLOCKS.slice(0, 2)), serveRest)
  await ended(follow(t, src))
  assert.deepStrictEqual(
    requests.map(({ url }) => url.pathname + url.search),
    [`/runs/${RUN}/events?from=snapshot`, `/runs/${RUN}/events?after=7-2`],
  )
  for (const { headers } of requests) {
    assert.equal(headers.accept, 'text/event-stream')
    assert.equal(headers['last-event-id'] ?? headers.authorization ?? headers['content-type'], undefined)
  }
})

for (const [name, end] of [
  ['LF', '\n'],
  ['CRLF', '\r\n'],
  ['CR', '\r'],
]) {
  test(`cut after any byte, lines ended by ${name}: each event once, in order`, async (t) => {
    const shown = [0, 4, 6]
    const bytes = Buffer.from(
      shown
        .map((at) => BLOCKS[at])
        .join('')
        .replaceAll('\n', end),
    )
    const cuts = new Map()
    const { src } = await gateway(t, (response, _request, url) => {
      const after = url.searchParams.get('after')
      const run = url.pathname.split('/')[2]
      const at = cuts.get(run)
      cuts.delete(run)
      if (at === undefined)
        return begin(
          response,
          shown.filter((each) => POSITIONS[each] > (after ?? '')).map((each) => BLOCKS[each]),
        ).end()
      assert.equal(after, null)
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(bytes.subarray(0, at), () => response.destroy())
    })
    const everyCut = Array.from({ length: bytes.length }, (_, at) => at)
    while (everyCut.length) {
      await Promise.all(
        everyCut.splice(0, 100).map(async (at) => {
          const run = `cut-${at}`
          cuts.set(run, at)
          const stream = new RunStream(src, run, { clock: fastClock(200) })
          const told = record(stream)
          await ended(stream)
          assert.deepStrictEqual(told.positions, ['7-1', '7-5', '7-7'], `cut after ${at} bytes`)
        }),
      )
    }
  })
}

test('a body that ends cleanly in the middle of the run is resumed', async (t) => {
  const { src, requests } = await gateway(t, BLOCKS.slice(0, 3), BLOCKS.slice(3, 4), serveRest)
  const stream = follow(t, src)
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(told.positions, POSITIONS)
  assert.deepStrictEqual(
    requests.map(({ url }) => url.searchParams.get('after')),
    [null, '7-3', '7-4'],
  )
  assert.deepStrictEqual(
    told.of('connection').map(({ connection }) => connection),
    ['live', 'reconnecting', 'live', 'reconnecting', 'live', 'closed'],
  )
})

test('what was sent before is not told again', async (t) => {
  const { src } = await gateway(t, BLOCKS.slice(0, 4), BLOCKS)
  const stream = follow(t, src)
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(told.positions, POSITIONS)
})

test('204 ends the stream', async (t) => {
  const { src, requests } = await gateway(t, cut(...BLOCKS.slice(0, 1)), (response) =>
    response.writeHead(204).end(),
  )
  const stream = follow(t, src)
  const told = record(stream)
  await ended(stream)
  assert.equal(told.of('end').length, 1)
  assert.equal(requests.length, 2)
})

test('a snapshot is where a stream begins', async (t) => {
  const joined = snapshot('join', '7-3', {
    title: 'joined',
    calls: [{ key: 'a', name: 'look', title: 'Looking…', attempt: 1, state: 'running' }],
  })
  const { src } = await gateway(t, [block('7-3', joined), ...BLOCKS.slice(3)])
  const stream = follow(t, src)
  const told = record(stream, 'snapshot')
  await ended(stream)
  assert.equal(told.of('snapshot')[0].event.data.reason, 'join')
  assert.deepStrictEqual(told.positions, ['7-3', '7-4', '7-5', '7-6', '7-7'])
  assert.deepStrictEqual([stream.state.title, stream.state.calls[0].state], ['joined', 'completed'])
})

for (const reason of ['absent', 'expired', 'deleted']) {
  test(`a snapshot with reason ${reason} ends the stream`, async (t) => {
    const { src, requests } = await gateway(t, cut(...BLOCKS.slice(0, 2)), [
      block('0-0', snapshot(reason, '0-0', { status: 'failed' })),
    ])
    const stream = follow(t, src)
    const told = record(stream)
    await ended(stream)
    assert.deepStrictEqual(
      told.of('end').map((end) => end.reason),
      [reason],
    )
    assert.deepStrictEqual(
      [stream.ended, stream.connection, stream.state.calls.length],
      [reason, 'closed', 0],
    )
    assert.equal(requests.length, 2)
  })
}

test("another epoch's events are ignored until it begins", async (t) => {
  const { src } = await gateway(t, [
    ...BLOCKS.slice(0, 2),
    block('9-7', call('a', 'tool_execution_completed')),
    block('9-8', event('run_completed')),
    block('8-4', snapshot('restarted', '8-4', { title: 'again' })),
    block('7-7', event('run_failed')),
    block('8-5', event('run_cancelled')),
  ])
  const stream = follow(t, src)
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(told.positions, ['7-1', '7-2', '8-4', '8-5'])
  assert.deepStrictEqual([stream.ended, stream.state.title], ['cancelled', 'again'])
})

test('what is no envelope, or has no position, is skipped', async (t) => {
  const { src } = await gateway(t, [
    'data: no json\n\n',
    'data: {"type":"run_failed"}\n\n',
    'id: yesterday\ndata: {"type":"run_failed"}\n\n',
    ...['null', '7', '"run_failed"', '[]'].map((data) => `id: 7-99\ndata: ${data}\n\n`),
    ...BLOCKS,
  ])
  const stream = follow(t, src)
  await ended(stream)
  assert.equal(stream.ended, 'completed')
})

test('an event that is called like one of ours is told as an event only', async (t) => {
  const { src } = await gateway(t, [
    BLOCKS[0],
    ...['end', 'state', 'error', 'connection', 'event'].map((type, at) => block(`7-${at + 2}`, event(type))),
    block('7-7', event('run_completed')),
  ])
  const stream = follow(t, src)
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(told.positions, POSITIONS)
  assert.equal(told.of('end').length, 1)
  assert.ok(told.of('state').every(({ state }) => state.run === RUN))
  assert.equal(told.of('error').length, 0)
})

test('from: start asks for the past, from: now for the future alone', async (t) => {
  const { src, requests } = await gateway(t, BLOCKS)
  await ended(follow(t, src, { from: 'start' }))
  await ended(follow(t, src, { from: 'now' }))
  assert.deepStrictEqual(
    requests.map(({ url }) => url.search),
    ['?from=start', '?from=now'],
  )
})

test('a saved state is shown first and gone on from', async (t) => {
  const { src, requests } = await gateway(t, BLOCKS, serveRest)
  const first = follow(t, src, { from: 'start' })
  const saved = await new Promise((resolve) =>
    first.addEventListener('tool_progress', () => resolve(first.state)),
  )
  await ended(first)
  const stream = follow(t, src, { state: JSON.parse(JSON.stringify(saved)) })
  assert.deepStrictEqual(stream.state, saved)
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(told.positions, ['7-5', '7-6', '7-7'])
  assert.equal(requests.at(-1).url.searchParams.get('after'), '7-4')
})

test('a saved state that has ended needs no connection', async (t) => {
  const { src, requests } = await gateway(t, BLOCKS)
  const stream = follow(t, src, { state: { run: RUN, position: '7-7', status: 'failed', calls: [] } })
  const told = record(stream)
  await ended(stream)
  assert.deepStrictEqual(
    [told.of('end')[0].reason, stream.connection, requests.length],
    ['failed', 'closed', 0],
  )
})

test('states come at most once in 100 ms without a visible page', async (t) => {
  const clock = manualClock()
  const { src } = await gateway(t, open(...BLOCKS.slice(0, 6)))
  const stream = follow(t, src, { clock })
  const told = record(stream)
  await until(() => stream.position === '7-6', 'six events have come')
  assert.deepStrictEqual(told.of('state'), [])
  clock.advance(99)
  assert.deepStrictEqual(told.of('state'), [])
  clock.advance(1)
  assert.deepStrictEqual(
    told.of('state').map(({ state }) => state.position),
    ['7-6'],
  )
  clock.advance(1000)
  assert.equal(told.of('state').length, 1)
})

test('in a visible page they come with its frames', async (t) => {
  const frames = []
  globalThis.document = Object.assign(new EventTarget(), {
    visibilityState: 'visible',
    baseURI: 'http://localhost/',
  })
  globalThis.requestAnimationFrame = (callback) => frames.push(callback)
  globalThis.cancelAnimationFrame = () => {}
  t.after(() => {
    delete globalThis.document
    delete globalThis.requestAnimationFrame
    delete globalThis.cancelAnimationFrame
  })
  const { src } = await gateway(t, open(...BLOCKS.slice(0, 6)))
  const stream = follow(t, src, { clock: manualClock() })
  const told = record(stream)
  await until(() => stream.position === '7-6', 'six events have come')
  assert.deepStrictEqual([frames.length, told.of('state').length], [1, 0])
  frames[0]()
  assert.deepStrictEqual([frames.length, told.of('state').length], [1, 1])
})

test('close() tells the gateway and nobody else', async (t) => {
  const { src, requests } = await gateway(t, open(...BLOCKS.slice(0, 2)))
  const stream = follow(t, src)
  const told = record(stream)
  await until(() => stream.position === '7-2', 'two events have come')
  stream.close()
  stream.close()
  assert.equal(stream.connection, 'closed')
  assert.deepStrictEqual([told.of('end').length, told.of('error').length], [0, 0])
  assert.deepStrictEqual(
    told.seen.slice(-2).map(({ type }) => type),
    ['state', 'connection'],
  )
  await until(() => requests[0].response.destroyed, 'the gateway sees the reader go')
  assert.equal(requests.length, 1)
})

test('an AbortSignal closes it, before or after', async (t) => {
  const { src, requests } = await gateway(t, open(...BLOCKS.slice(0, 2)))
  assert.equal(follow(t, src, { signal: AbortSignal.abort() }).connection, 'closed')

  const life = new AbortController()
  const stream = follow(t, src, { signal: life.signal })
  const told = record(stream)
  await until(() => stream.position === '7-2', 'two events have come')
  life.abort()
  assert.equal(stream.connection, 'closed')
  assert.equal(told.of('error').length, 0)
  await until(() => requests[0].response.destroyed, 'the gateway sees the reader go')
  assert.equal(requests.length, 1)
})

test('for await gives envelopes with their position and ends with the stream', async (t) => {
  const { src } = await gateway(t, cut(...BLOCKS.slice(0, 3)), serveRest)
  const seen = []
  for await (const each of follow(t, src)) seen.push(each)
  assert.deepStrictEqual(
    seen,
    LOG.map(([id, each]) => ({ id, ...JSON.parse(JSON.stringify(each)) })),
  )
})

test('leaving for await closes the stream', async (t) => {
  const { src, requests } = await gateway(t, open(...BLOCKS.slice(0, 3)))
  const stream = follow(t, src)
  for await (const { type } of stream) if (type === 'tool_call_identified') break
  assert.equal(stream.connection, 'closed')
  await until(() => requests[0].response.destroyed, 'the gateway sees the reader go')
})

test('who falls 10,000 events behind gets a snapshot instead', async () => {
  const many = Array.from({ length: 10_010 }, (_, at) =>
    event('llm_token_usage', { data: { input: at, output: 0, total: at } }),
  )
  const stream = RunStream.of([event('run_started'), ...many, event('run_completed')])
  const iterator = stream[Symbol.asyncIterator]()
  const first = iterator.next()
  await ended(stream)
  const seen = [(await first).value]
  for await (const each of iterator) seen.push(each)
  const lagged = seen.find(({ type }) => type === 'snapshot')
  assert.deepStrictEqual(
    [lagged.type, lagged.data.reason, lagged.id],
    ['snapshot', 'lagged', lagged.data.position],
  )
  assert.equal(seen.at(-1).type, 'run_completed')
  assert.ok(seen.length < 100)
})

test('the clock difference is the least between an event and its arrival', async (t) => {
  const clock = manualClock()
  const at = (ms) => new Date(clock.now() - ms).toISOString()
  const { src } = await gateway(
    t,
    open(
      block('7-1', { ...event('run_started'), time: at(60_000) }),
      block('7-2', { ...event('x_a'), time: at(250) }),
      block('7-3', { ...event('x_b'), time: at(900) }),
      block('7-4', { ...event('x_c'), time: 'soon' }),
    ),
  )
  const stream = follow(t, src, { clock })
  assert.equal(stream.skew, 0)
  await until(() => stream.position === '7-4', 'four events have come')
  assert.equal(stream.skew, 250)
})

test('RunStream.of plays events, with positions of their own or numbered', async () => {
  const plain = RunStream.of(LOG.map(([, each]) => each))
  const told = record(plain)
  await ended(plain)
  assert.deepStrictEqual(told.positions, ['1-1', '1-2', '1-3', '1-4', '1-5', '1-6', '1-7'])
  assert.deepStrictEqual([plain.run, plain.ended, plain.connection], [RUN, 'completed', 'closed'])
  assert.deepStrictEqual(
    told.of('connection').map(({ connection }) => connection),
    ['live', 'closed'],
  )

  async function* recorded() {
    for (const [id, each] of LOG.slice(0, 3)) yield { id, ...each }
  }
  const partial = RunStream.of(recorded(), { run: RUN })
  const seen = []
  for await (const { id } of partial) seen.push(id)
  assert.deepStrictEqual(seen, ['7-1', '7-2', '7-3'])
  assert.equal(partial.state.calls[0].state, 'running')
})

test('a played run that was left in the middle stays there', async () => {
  const stream = RunStream.of(LOG.slice(0, 3).map(([, each]) => each))
  await until(() => stream.position === '1-3', 'three events have been played')
  assert.deepStrictEqual(
    [stream.connection, stream.ended, stream.state.status],
    ['live', undefined, 'running'],
  )
})

test('newRunId makes ids nobody can guess', () => {
  const ids = new Set(Array.from({ length: 1000 }, () => newRunId('user-42')))
  assert.equal(ids.size, 1000)
  for (const id of ids) assert.match(id, /^user-42\.[0-9a-f]{32}$/)
  assert.match(newRunId(), /^[0-9a-f]{32}$/)
  for (const prefix of ['', '-a', 'a b', 'a/b', 'ü', 'x'.repeat(96)]) {
    assert.throws(() => newRunId(prefix), {
      name: 'TypeError',
      message: /prefix .* makes no run id: use 1 to 128/,
    })
  }
})

test('what can name no run, and no gateway, is refused at once', () => {
  for (const run of [undefined, null, '', '.a', 'a/b', 'a b', 'x'.repeat(129), 7]) {
    assert.throws(() => new RunStream('http://127.0.0.1:9', run), {
      name: 'TypeError',
      message: /run id .* is not usable/,
    })
  }
  assert.throws(() => new RunStream('', RUN), { name: 'TypeError', message: /must be absolute/ })
})

test('src is resolved against the page, and a slash at its end does not matter', async (t) => {
  const asked = []
  const fetch = async (url) => {
    asked.push(String(url))
    return new Response(null, { status: 204 })
  }
  globalThis.location = /** @type {any} */ (new URL('https://app.example/chat/index.html'))
  t.after(() => delete globalThis.location)
  for (const src of [
    '',
    '/',
    '/toolcast',
    '/toolcast/',
    'live',
    'https://gateway.example/',
    new URL('https://gateway.example/a'),
  ]) {
    await ended(follow(t, src, { fetch, from: 'start' }))
  }
  assert.deepStrictEqual(
    asked.map((url) => url.replace(`/runs/${RUN}/events?from=start`, '')),
    [
      'https://app.example',
      'https://app.example',
      'https://app.example/toolcast',
      'https://app.example/toolcast',
      'https://app.example/chat/live',
      'https://gateway.example',
      'https://gateway.example/a',
    ],
  )
})

test('cancel() asks the agent to stop', async (t) => {
  const bodies = []
  const accept = (response, request) => {
    if (request.method === 'GET') return open(...BLOCKS.slice(0, 2))(response)
    request.on('data', (data) => bodies.push(JSON.parse(String(data))))
    request.on('end', () => response.writeHead(202).end())
  }
  const { src, requests, stop } = await gateway(t, accept)
  const stream = follow(t, src, { token: async () => 'abc', headers: { 'x-team': 'blue' } })
  await stream.cancel({ reason: 'enough' })
  const { method, url, headers } = requests.at(-1)
  assert.deepStrictEqual(
    [method, url.pathname, headers.authorization, headers['x-team'], bodies[0]],
    ['POST', `/runs/${RUN}/cancel`, 'Bearer abc', 'blue', { reason: 'enough' }],
  )
  stream.close()
  await stop()
  await assert.rejects(
    stream.cancel(),
    (error) => error instanceof RunStreamError && error.reason === 'unreachable',
  )
})
