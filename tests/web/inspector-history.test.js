import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fold, waiting } from '../../web/fold.js'
import { History } from '../../web/inspector/history.js'

const history = new History('r')
const events = Array.from({ length: 300 }, (_, i) => ({
  type: i ? 'tool_execution_started' : 'run_started', run: 'r', time: '2026-11-30T19:47:18.123Z',
  call: { key: `c${i}`, name: 'look', title: 'Looking…', attempt: 1 },
}))
events.forEach((event, i) => history.push(`7-${i + 1}`, event))

test('the state after any number of events is their fold, in whatever order it is asked for', () => {
  for (const count of [300, 0, 64, 63, 65, 299, 1, 128, 300]) {
    const expected = events.slice(0, count).reduce((state, event, i) => fold(state, `7-${i + 1}`, event), waiting('r'))
    assert.deepEqual(history.at(count), expected, `after ${count}`)
  }
})

test('the same place gives the same object', () => {
  assert.equal(history.at(200), history.at(200))
})

test('a position says how many events lead to it', () => {
  assert.deepEqual([history.countAt('7-12'), history.countAt('8-12')], [12, undefined])
})
