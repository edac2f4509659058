import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SSEParser } from '../../web/sse-parser.js'

const bytes = (text) => new TextEncoder().encode(text)

/** The messages of `text`, fed in pieces of `size` bytes. */
function parse(text, size = Infinity) {
  const parser = new SSEParser()
  const all = typeof text === 'string' ? bytes(text) : text
  const messages = []
  for (let at = 0; at < all.length; at += size) messages.push(...parser.push(all.subarray(at, at + size)))
  return { messages, retry: parser.retry }
}

/** Whole, byte by byte, and in every other small size, the outcome is `expected`. */
function gives(text, expected, retry) {
  for (const size of [Infinity, 1, 2, 3, 7]) {
    assert.deepStrictEqual(parse(text, size), { messages: expected, retry }, `in pieces of ${size}`)
  }
}

const STREAM =
  ':ok\nretry: 2137\nid: 7-1\nevent: run_started\ndata: {"type":"run_started"}\n\n:hb\nid: 7-2\nevent: x_ü\ndata: “ü”\n\n'
const MESSAGES = [
  { event: 'run_started', data: '{"type":"run_started"}', id: '7-1' },
  { event: 'x_ü', data: '“ü”', id: '7-2' },
]

for (const [name, end] of [
  ['LF', '\n'],
  ['CR', '\r'],
  ['CRLF', '\r\n'],
]) {
  test(`lines end with ${name}`, () => gives(STREAM.replaceAll('\n', end), MESSAGES, 2137))
}

test('line ends may be mixed, and CR LF is one', () => {
  gives('data: a\r\rdata: b\n\r\ndata: c\r\n\n', [
    { event: '', data: 'a', id: '' },
    { event: '', data: 'b', id: '' },
    { event: '', data: 'c', id: '' },
  ])
})

test('a byte order mark at the beginning is no part of it, a later one is', () => {
  gives('\ufeffdata: a\n\n', [{ event: '', data: 'a', id: '' }])
  gives('data: \ufeffa\n\n', [{ event: '', data: '\ufeffa', id: '' }])
  gives('\ufeff\ufeffdata: a\n\n', [])
})

test('a block that is not ended is nothing yet', () =>
  gives('data: a\n\ndata: b\n', [{ event: '', data: 'a', id: '' }]))

test('a block without data is no message, but its id counts', () => {
  gives('id: 7-1\nevent: lost\n\ndata: a\n\n', [{ event: '', data: 'a', id: '7-1' }])
})

test('an id stays until another comes, an event type does not', () => {
  gives('id: 7-1\nevent: x\ndata: a\n\ndata: b\n\nid\ndata: c\n\n', [
    { event: 'x', data: 'a', id: '7-1' },
    { event: '', data: 'b', id: '7-1' },
    { event: '', data: 'c', id: '' },
  ])
})

test('an id with NUL is ignored', () => {
  gives('id: 7-1\ndata: a\n\nid: 7\u0000-2\ndata: b\n\n', [
    { event: '', data: 'a', id: '7-1' },
    { event: '', data: 'b', id: '7-1' },
  ])
})

test('several data lines are one message with line breaks', () => {
  gives('data: a\ndata\ndata: b\n\ndata\n\n', [
    { event: '', data: 'a\n\nb', id: '' },
    { event: '', data: '', id: '' },
  ])
})

test('one space after the colon is no part of the value', () => {
  gives('data:a\ndata:  b\ndata:c: d\n\n', [{ event: '', data: 'a\n b\nc: d', id: '' }])
})

test('comments and unknown fields are skipped', () => {
  gives(':\n: data: x\nfoo: bar\nDATA: y\n data: z\ndata: a\n\n', [{ event: '', data: 'a', id: '' }])
})

test('retry is taken when it is digits only', () => {
  gives('retry: 10s\n', [], undefined)
  gives('retry: -1\n', [], undefined)
  gives('retry\n', [], undefined)
  gives('retry: 0015\n', [], 15)
})

test('what other languages take for a line break is text', () => {
  gives('data: a\u2028b\u2029c\u0085d\u000be\n\n', [
    { event: '', data: 'a\u2028b\u2029c\u0085d\u000be', id: '' },
  ])
})

test('a character cut in two is one, and bytes that are no UTF-8 are replaced', () => {
  gives('data: 👩🏽‍🚀\n\n', [{ event: '', data: '👩🏽‍🚀', id: '' }])
  const broken = Uint8Array.of(...bytes('data: '), 0xff, ...bytes('\n\n'))
  assert.deepStrictEqual(parse(broken).messages, [{ event: '', data: '\ufffd', id: '' }])
})

test('a long line in many pieces takes no longer than its length', () => {
  const data = 'x'.repeat(4_000_000)
  const { messages } = parse(`data: ${data}\n\n`, 4096)
  assert.equal(messages[0].data.length, data.length)
})
