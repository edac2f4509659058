import assert from 'node:assert/strict'
import { test } from 'node:test'
import { configure, fill, formatDuration, label, whenConfigured } from '../../web/labels.js'

test('durations: tenths below ten seconds, whole seconds below a minute, then minutes', () => {
  const written = [0, 45, 800, 3140, 9960, 14_400, 59_600, 65_000, 3_725_000].map(formatDuration)
  assert.deepEqual(written, ['0 ms', '45 ms', '0.8 s', '3.1 s', '10 s', '14 s', '1 m 00 s', '1 m 05 s', '1 h 02 m'])
})

test('a name that is not known leaves the template unused', () => {
  assert.equal(fill('Sucht nach „{q}“', { q: 'solar' }), 'Sucht nach „solar“')
  assert.equal(fill('Sucht nach „{q}“', {}), undefined)
})

test('a page’s language replaces what it names, and numbers follow it', () => {
  let told = 0
  const life = new AbortController()
  whenConfigured(() => told++, life.signal)
  configure({ locale: 'de', labels: { thinking: 'Denkt nach …', used: { one: '{n} Werkzeug', other: '{n} Werkzeuge' } } })
  life.abort()
  configure({})
  assert.equal(told, 1)
  assert.deepEqual([label('thinking'), label('used', { n: 1 }), label('used', { n: 1234 })], ['Denkt nach …', '1 Werkzeug', '1.234 Werkzeuge'])
  assert.equal(formatDuration(3100), '3,1 s')
  assert.equal(label('starting'), 'Starting…', 'what is left out stays English')
  assert.equal(label('attempt', { n: 2 }, 'ordinal'), '2nd try', 'and so do its plurals')
})
