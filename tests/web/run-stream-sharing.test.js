import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RunStream } from '../../web/run-stream.js'
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
  stream as begin,
  until,
} from './scripted-gateway.js'

const STARTED = block('7-1', event('run_started', { data: { title: 'shared' } }))
const IDENTIFIED = block('7-2', call('a', 'tool_call_identified'))
const COMPLETED = block('7-3', event('run_completed'))

/** Streams that may share: the clock is part of who they are. */
function follower(t, src, clock = fastClock()) {
  return (options = {}, run = RUN) => {
    const stream = new RunStream(src, run, { clock, ...options })
    t.after(() => stream.close())
    return stream
  }
}

const at = (stream, position) => until(() => stream.position === position, `the stream is at ${position}`)

test('streams of one run share one connection, each told everything once', async (t) => {
  const { src, requests } = await gateway(t, cut(STARTED), (response) =>
    begin(response, [IDENTIFIED, COMPLETED]).end(),
  )
  const follow = follower(t, src)
  const streams = [follow(), follow(), follow()]
  const told = streams.map((stream) => record(stream))
  await until(() => streams.every(({ ended }) => ended), 'all have ended')
  assert.equal(requests.length, 2)
  for (const each of told) {
    assert.deepStrictEqual(each.positions, ['7-1', '7-2', '7-3'])
    assert.equal(each.of('end').length, 1)
    assert.equal(each.of('state').at(-1).state, streams[0].state)
  }
})

test('who comes later begins with a snapshot of what is known', async (t) => {
  const { src, requests } = await gateway(t, open(STARTED, IDENTIFIED))
  const follow = follower(t, src)
  const first = follow()
  await at(first, '7-2')
  const second = follow()
  assert.deepStrictEqual([second.state, second.connection], [first.state, 'live'])
  const told = record(second, 'snapshot')
  const iterator = second[Symbol.asyncIterator]()
  const { value } = await iterator.next()
  assert.deepStrictEqual(
    [value.id, value.type, value.data.reason, value.data.title],
    ['7-2', 'snapshot', 'join', 'shared'],
  )
  await until(() => told.of('state').length, 'the state is told')
  assert.deepStrictEqual(told.positions, ['7-2'])
  assert.equal(told.of('snapshot').length, 1)
  requests[0].response.end(COMPLETED)
  await until(() => second.ended && first.ended, 'both have ended')
  assert.deepStrictEqual(told.positions, ['7-2', '7-3'])
  assert.equal(requests.length, 1)
})

test('the connection goes with its last stream, a second later', async (t) => {
  const clock = manualClock()
  const { src, requests } = await gateway(t, open(STARTED))
  const follow = follower(t, src, clock)
  const [first, second] = [follow(), follow()]
  await at(second, '7-1')
  first.close()
  clock.advance(5000)
  assert.ok(!requests[0].response.destroyed, 'somebody reads still')
  second.close()
  clock.advance(999)
  const third = follow()
  clock.advance(5000)
  assert.deepStrictEqual([third.position, third.connection, requests.length], ['7-1', 'live', 1])
  third.close()
  clock.advance(1000)
  await until(() => requests[0].response.destroyed, 'the connection is given back')
  assert.equal(clock.pending, 0)
  follow()
  await until(() => requests.length === 2, 'the next stream has one of its own')
})

test('a stream that comes back before the first byte is no second request', async (t) => {
  const { src, requests } = await gateway(t, [STARTED, COMPLETED])
  const follow = follower(t, src)
  follow().close()
  const stream = follow()
  await until(() => stream.ended, 'the stream has ended')
  assert.equal(requests.length, 1)
})

test('other runs, other tokens, other starting points have connections of their own', async (t) => {
  const { src, requests } = await gateway(t, open(STARTED))
  const follow = follower(t, src)
  const token = () => 'abc'
  const streams = [
    follow(),
    follow({}, 'other'),
    follow({ token }),
    follow({ token: () => 'abc' }),
    follow({ token: 'abc' }),
    follow({ headers: { 'x-team': 'blue' } }),
    follow({ credentials: 'include' }),
    follow({ from: 'start' }),
    follow({ from: 'start' }),
  ]
  await until(() => requests.length === streams.length, 'each has asked')
  follow({ token })
  follow({ token: 'abc' })
  follow({ headers: [['X-Team', 'blue']] })
  await at(follow(), '7-1')
  assert.equal(requests.length, streams.length)
})

test('a refusal is told to everybody, and the next stream asks again', async (t) => {
  const refuse = (response) =>
    response
      .writeHead(403, { 'content-type': 'application/problem+json' })
      .end('{"detail":"Shared refusal."}')
  const { src, requests } = await gateway(t, refuse)
  const follow = follower(t, src)
  const streams = [follow(), follow()]
  const told = streams.map((stream) => record(stream))
  await until(() => streams.every(({ error }) => error), 'both were told')
  assert.deepStrictEqual(
    told.map((each) => each.of('error').length),
    [1, 1],
  )
  assert.equal(requests.length, 1)
  const third = follow()
  await until(() => third.error, 'the third was told')
  assert.equal(requests.length, 2)
})

test('a run that has ended is asked for anew', async (t) => {
  const { src, requests } = await gateway(t, [STARTED, COMPLETED])
  const follow = follower(t, src)
  const first = follow()
  await until(() => first.ended, 'the run has ended')
  const second = follow()
  assert.equal(second.state.status, 'waiting')
  await until(() => second.ended, 'the run has ended again')
  assert.equal(requests.length, 2)
})

test('a stream that a listener closes misses nothing for the others', async (t) => {
  const { src } = await gateway(t, [STARTED, IDENTIFIED, COMPLETED])
  const follow = follower(t, src)
  const [first, second] = [follow(), follow()]
  const told = record(second)
  first.addEventListener('run_started', () => first.close())
  await until(() => second.ended, 'the run has ended')
  assert.deepStrictEqual(told.positions, ['7-1', '7-2', '7-3'])
  assert.deepStrictEqual([first.ended, first.position], [undefined, '7-1'])
})
