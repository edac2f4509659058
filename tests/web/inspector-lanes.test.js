import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Lanes, ticks } from '../../web/inspector/lanes.js'

const AT = Date.parse('2026-11-30T19:47:18.000Z')
const event = (seconds, type, key, data, more = {}) => ({
  type, run: 'r', time: new Date(AT + seconds * 1000).toISOString(), data, ...more,
  ...(key && { call: { key, name: 'look', title: `Looking at ${key}…`, attempt: more.attempt ?? 1 } }),
})
const lanes = (...events) => {
  const made = new Lanes()
  for (const each of events) made.push(each)
  return made
}
const bars = (made, key) => made.lanes.get(key).bars.map(({ kind, from, to }) => [kind, (from - AT) / 1000, to && (to - AT) / 1000])

test('a call is prepared, runs, and ends', () => {
  const made = lanes(event(0, 'run_started'), event(1, 'tool_call_identified', 'a'), event(2, 'tool_execution_started', 'a'),
    event(3, 'tool_progress', 'a'), event(4, 'tool_execution_completed', 'a'))
  assert.deepEqual(bars(made, 'a'), [['identified', 1, 2], ['completed', 2, 4]])
  assert.equal(made.lanes.get('a').title, 'Looking at a')
})

test('each attempt is a bar of its own', () => {
  const made = lanes(event(1, 'tool_execution_started', 'a'), event(2, 'tool_execution_failed', 'a', { reason: 'timeout' }),
    event(3, 'tool_execution_started', 'a', {}, { attempt: 2 }))
  assert.deepEqual(bars(made, 'a'), [['failed', 1, 2], ['running', 3, undefined]])
})

test('a held call waits until it is answered', () => {
  const made = lanes(event(1, 'tool_call_identified', 'a'), event(2, 'tool_execution_started', 'a'), event(2, 'tool_interrupted', 'a', { message: '?' }),
    event(5, 'tool_decision', 'a'), event(6, 'tool_execution_started', 'a'))
  assert.deepEqual(bars(made, 'a'), [['identified', 1, 2], ['waiting', 2, 5], ['identified', 5, 6], ['running', 6, undefined]])
})

test('the end of the run ends every bar', () => {
  const made = lanes(event(0, 'run_started'), event(1, 'tool_call_identified', 'a'), event(1, 'tool_execution_started', 'b'), event(9, 'run_failed'))
  assert.deepEqual([bars(made, 'a'), bars(made, 'b')], [[['identified', 1, 9]], [['cancelled', 1, 9]]])
  assert.equal(made.end, AT + 9000)
})

test('a run that begins again forgets what was before', () => {
  const made = lanes(event(0, 'run_started'), event(1, 'tool_execution_started', 'a'), event(5, 'run_started'))
  assert.deepEqual([made.lanes.size, made.start], [0, AT + 5000])
})

test('a snapshot stands in for a past that is gone', () => {
  const time = (seconds) => new Date(AT + seconds * 1000).toISOString()
  const made = lanes({ type: 'snapshot', run: 'r', time: time(9), data: { started_at: time(0), calls: [
    { key: 'a', title: 'A', state: 'completed', identified_at: time(1), started_at: time(2), ended_at: time(3) },
    { key: 'b', title: 'B', state: 'interrupted', started_at: time(4) },
  ] } })
  assert.deepEqual([bars(made, 'a'), bars(made, 'b')], [[['identified', 1, 2], ['completed', 2, 3]], [['waiting', 4, undefined]]])
})

test('lanes of a nested agent stand under the call that started it', () => {
  const made = lanes(event(1, 'tool_execution_started', 'p'), event(2, 'tool_execution_started', 'q'), event(3, 'tool_execution_started', 'p.1', {}, { parent: 'p' }))
  assert.deepEqual(made.ordered().map(({ key, depth }) => [key, depth]), [['p', 0], ['p.1', 1], ['q', 0]])
})

test('an axis has at most so many marks, at round times', () => {
  assert.deepEqual(ticks(0, 16_300, 5), [0, 4000, 8000, 12_000, 16_000])
  assert.deepEqual(ticks(0, 900, 5), [0, 200, 400, 600, 800])
  assert.ok(ticks(0, 10 * 86_400_000, 5).length <= 6)
})
