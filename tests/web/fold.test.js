import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import { MAX_CALLS, fold, isEnded, isOpen, waiting } from '../../web/fold.js'

const VECTORS = new URL('../vectors/', import.meta.url)
const RUN = 'run_8f2c'
const time = '2026-11-30T19:47:18.123Z'

const event = (type, key, data = {}, attempt) => ({
  type,
  run: RUN,
  time,
  ...(key && { call: { key, name: 'look', title: 'Looking…', attempt } }),
  data,
})
const folded = (...events) =>
  events.reduce((state, each, at) => fold(state, `7-${at + 1}`, each), waiting(RUN))

for (const file of readdirSync(VECTORS).filter((name) => name.endsWith('.json'))) {
  for (const { name, events, state } of JSON.parse(readFileSync(new URL(file, VECTORS), 'utf8'))) {
    test(`${file}: ${name}`, () => {
      const given = structuredClone(events)
      const result = given.reduce((known, { position, event }) => fold(known, position, event), waiting(RUN))
      assert.deepStrictEqual(result, state)
      assert.deepStrictEqual(given, events, 'events are left as they are')
    })
  }
}

test('a repeat gives the same object', () => {
  const state = folded(event('run_started'), event('tool_execution_started', 'a'))
  assert.equal(fold(state, '7-1', event('run_failed')), state)
  assert.equal(fold(state, '8-9', event('run_failed')), state)
})

test('a state that somebody holds never changes', () => {
  const before = folded(event('tool_execution_started', 'a'), event('tool_execution_started', 'b'))
  const copy = structuredClone(before)
  const after = fold(before, '7-3', event('tool_execution_completed', 'b', { result: 1 }))
  assert.deepStrictEqual(before, copy)
  assert.notEqual(after.calls, before.calls)
  assert.equal(after.calls[0], before.calls[0], 'what did not change is shared')
})

test('what is no event, and what stands nowhere, changes nothing', () => {
  const state = folded(event('run_started'))
  for (const odd of [null, undefined, 7, 'run_failed', [], [event('run_failed')]]) {
    assert.equal(fold(state, '7-2', odd), state)
  }
  for (const odd of [
    '',
    '7',
    '7-',
    '-2',
    '7-2 ',
    '07-2',
    '7-2-3',
    'a-b',
    '7-'.padEnd(10_000, '2'),
    null,
    undefined,
    72,
  ]) {
    assert.equal(fold(state, odd, event('run_failed')), state)
  }
})

test('an envelope of wrong types folds as far as it makes sense', () => {
  const odd = {
    type: 'tool_execution_started',
    time: 7,
    call: { key: 'a', name: 1, title: [], id: {}, index: '0' },
    data: [],
  }
  const state = fold(waiting(RUN), '7-1', /** @type {any} */ (odd))
  assert.deepStrictEqual(state.calls, [
    { key: 'a', name: '', title: '', attempt: 1, state: 'running', started_at: '' },
  ])
  assert.deepStrictEqual(fold(waiting(RUN), '7-1', { ...odd, call: 'a' }).calls, [])
  assert.deepStrictEqual(fold(waiting(RUN), '7-1', { ...odd, call: { key: 7 } }).calls, [])
})

test('the oldest ended calls go beyond the limit', () => {
  const many = Array.from({ length: MAX_CALLS + 4 }, (_, n) => event('tool_execution_completed', `call_${n}`))
  const state = folded(event('tool_execution_started', 'open'), ...many)
  assert.equal(state.calls.length, MAX_CALLS)
  assert.deepStrictEqual([state.calls[0].key, state.calls[1].key], ['open', 'call_5'])
  assert.equal(state.calls_dropped, 5)
})

test('the oldest open call goes when none has ended', () => {
  const state = folded(
    ...Array.from({ length: MAX_CALLS + 1 }, (_, n) => event('tool_execution_started', `call_${n}`)),
  )
  assert.deepStrictEqual(
    [state.calls.length, state.calls[0].key, state.calls_dropped],
    [MAX_CALLS, 'call_1', 1],
  )
})

test('restored calls keep to the limit', () => {
  const many = Array.from({ length: MAX_CALLS - 1 }, (_, n) => event('tool_execution_completed', `call_${n}`))
  const restored = event('run_restored', undefined, { calls: [{ key: 'a' }, { key: 'b' }, { key: 'c' }] })
  const { calls, calls_dropped } = folded(...many, restored)
  assert.deepStrictEqual(
    calls.slice(-3).map(({ key }) => key),
    ['a', 'b', 'c'],
  )
  assert.deepStrictEqual([calls.length, calls[0].key, calls_dropped], [MAX_CALLS, 'call_2', 2])
})

test('isOpen and isEnded tell what is over', () => {
  const open = folded(event('tool_interrupted', 'a'))
  assert.ok(isOpen(open.calls[0]) && !isEnded(open))
  const ended = fold(open, '7-2', event('run_cancelled'))
  assert.ok(!isOpen(ended.calls[0]) && isEnded(ended))
})
