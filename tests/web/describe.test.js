import assert from 'node:assert/strict'
import { test } from 'node:test'
import { describeCall, describeRun, elapsedOf, fractionOf, isExpired, parseSummary, progressText, titleOf } from '../../web/describe.js'
import { configure } from '../../web/labels.js'

const AT = Date.parse('2026-11-30T19:47:18.000Z')
const time = (seconds) => new Date(AT + seconds * 1000).toISOString()
const call = (state, more = {}) => ({ key: 'a', name: 'web_search', title: 'Searching the web…', attempt: 1, state, ...more })
const run = (status, calls = [], more = {}) => ({ run: 'r', position: '7-9', status, started_at: time(0), calls, ...more })
const line = (state, seconds = 5) => describeRun(state, AT + seconds * 1000)

test('a run that nobody has begun, and one of which only the stub is left, have no line', () => {
  assert.equal(line(run('waiting')), undefined)
  const stub = run('completed', [], { position: '0-0' })
  assert.equal(isExpired(stub), true)
  assert.equal(line(stub), undefined)
})

test('a run between two tools thinks', () => {
  assert.equal(line(run('running', [call('completed')])).title, 'Thinking…')
})

test('a call that has not started is being prepared, and its title loses the ellipsis', () => {
  const { icon, title, detail } = line(run('running', [call('identified')]))
  assert.deepEqual([icon, title, detail], ['identified', 'Searching the web', 'preparing'])
})

test('a running call shows its title as it is, and its time from one second on', () => {
  const state = run('running', [call('running', { started_at: time(4.5) })])
  assert.deepEqual([line(state).title, line(state).elapsed], ['Searching the web…', undefined])
  assert.equal(line(state, 6.5).elapsed, 2000)
})

test('of several open calls the one started last is shown, and how many more there are', () => {
  const calls = [
    call('running', { key: 'a', started_at: time(1) }),
    call('running', { key: 'b', started_at: time(3), title: 'Reading ree.es…' }),
    call('identified', { key: 'c', title: 'Not yet' }),
    call('running', { key: 'd', started_at: time(2) }),
  ]
  assert.deepEqual([line(run('running', calls)).title, line(run('running', calls)).more], ['Reading ree.es…', 3])
})

test('a question comes before all that runs', () => {
  const asking = call('interrupted', { key: 'q', title: 'Send it?', interrupt: { position: '7-2', message: 'Send e-mail to the team?\nReally' } })
  const shown = line(run('running', [call('running'), asking]))
  assert.deepEqual([shown.icon, shown.title, shown.detail, shown.question], ['question', 'Waiting for you', 'Send e-mail to the team?', asking])
})

test('a finished run says how many tools it used and how long it took', () => {
  const title = (n) => line(run('completed', Array(n).fill(call('completed')), { ended_at: time(12) })).title
  assert.deepEqual([title(3), title(1), title(0)], ['Used 3 tools · 12 s', 'Used 1 tool · 12 s', 'Finished without using a tool · 12 s'])
})

test('a failed run shows the call it failed at, else its own message', () => {
  const failed = call('failed', { title: 'Couldn’t read ree.es', error: { message: 'timed out\nafter all', reason: 'timeout' }, duration_ms: 30_000 })
  const one = line(run('failed', [failed], { error: { code: 'x', message: 'gave up' } }))
  assert.deepEqual([one.title, one.error, one.elapsed], ['Couldn’t read ree.es', 'timed out', 30_000])
  const other = line(run('failed', [call('cancelled')], { error: { code: 'publisher_lost', message: 'The agent stopped responding.' } }))
  assert.deepEqual([other.title, other.error], ['Failed', 'The agent stopped responding.'])
})

test('a refused call is named for a moment, then the agent thinks again', () => {
  const state = run('running', [call('denied', { ended_at: time(1), title: 'Send e-mail' })])
  assert.deepEqual([line(state, 2).title, line(state, 2).detail], ['Send e-mail', 'not allowed'])
  assert.equal(line(state, 4).title, 'Thinking…')
})

test('a further try says so', () => {
  const details = [2, 3, 11].map((attempt) => describeCall(call('running', { attempt }), AT).detail)
  assert.deepEqual(details, ['2nd try', '3rd try', '11th try'])
})

test('the agent’s own figure counts, and what ended without one is measured by its times', () => {
  assert.equal(elapsedOf(call('completed', { started_at: time(0), ended_at: time(9), duration_ms: 8123 }), AT), 8123)
  assert.equal(elapsedOf(call('cancelled', { started_at: time(0), ended_at: time(9) }), AT), 9000)
  assert.equal(elapsedOf(call('running', { started_at: time(9) }), AT), 0, 'a clock that is behind counts nothing')
})

test('progress is its message, else how far of how much', () => {
  const text = (progress) => progressText({ progress })
  assert.deepEqual([text({ progress: 2, total: 5 }), text({ progress: 2, total: 5, message: 'page 2' }), text({ progress: 1200 }), text({})],
    ['2 of 5', 'page 2', '1,200', undefined])
  assert.deepEqual([fractionOf({ progress: { progress: 7, total: 5 } }), fractionOf({ progress: { progress: 1, total: 0 } })], [1, undefined])
})

test('a summary is taken apart only if it surely is a list of arguments', () => {
  assert.deepEqual(parseSummary('city: Oslo, unit: C'), { city: 'Oslo', unit: 'C' })
  assert.deepEqual(parseSummary('q: a, b and c'), { q: 'a, b and c' })
  assert.equal(parseSummary('9 items: queue.py, sched.py, …'), undefined)
  assert.equal(parseSummary('a: 1, a: 2'), undefined)
})

test('titles in the page’s own language are filled from the arguments, and give way when they can’t be', () => {
  configure({ labels: { tools: { web_search: ['Sucht nach „{q}“ …', 'Nach „{q}“ gesucht'] } } })
  assert.equal(titleOf(call('running', { arguments_summary: 'q: solar, n: 5' })), 'Sucht nach „solar“ …')
  assert.equal(titleOf(call('completed', { arguments: { q: 'wind' } })), 'Nach „wind“ gesucht')
  assert.equal(titleOf(call('running')), 'Searching the web…')
  configure({ labels: { tools: {} } })
  assert.equal(titleOf(call('running', { title: '' })), 'Web search')
})
