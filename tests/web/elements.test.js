import assert from 'node:assert/strict'
import { test } from 'node:test'

test('the elements can be imported where there is no page', async () => {
  const { RunStateElement, ToolStateElement, configure } = await import('../../web/define.js')
  assert.deepEqual([typeof RunStateElement, typeof ToolStateElement, typeof configure], ['function', 'function', 'function'])
  await import('../../web/define.js?again')
})

test('calls of nested agents follow their parents, and one whose parent is gone stays where it was', async () => {
  const { nested } = await import('../../web/run-state-element.js')
  const calls = [{ key: 'p' }, { key: 'q' }, { key: 'p.1', parent: 'p' }, { key: 'x', parent: 'gone' }, { key: 'p.1.1', parent: 'p.1' }]
  assert.deepEqual(nested(calls).map(({ call, depth }) => [call.key, depth]), [['p', 0], ['p.1', 1], ['p.1.1', 2], ['q', 0], ['x', 0]])
})
