import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import { tokens } from '../../web/tokens.js'

const WEB = new URL('../../web/', import.meta.url)
const colours = new Map([...tokens.matchAll(/var\(--tc-([\w-]+), light-dark\((#\w{6}), (#\w{6})\)\)/g)].map(([, name, ...pair]) => [name, pair]))

const luminance = (hex) => {
  const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}
const contrast = (one, other) => {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a)
  return (light + 0.05) / (dark + 0.05)
}
const worst = (name, grounds, scheme) => Math.min(...grounds.map((ground) => contrast(colours.get(name)[scheme], colours.get(ground)[scheme])))

const GROUNDS = ['bg', 'surface', 'sunken']
for (const [scheme, word] of ['light', 'dark'].entries()) {
  test(`${word}: every text has a contrast of 4.5 on whatever it stands on`, () => {
    for (const name of ['ink', 'ink-2', 'ink-3']) assert.ok(worst(name, [...GROUNDS, 'select'], scheme) >= 4.5, name)
    for (const name of ['accent', 'warn', 'bad']) assert.ok(worst(name, [...GROUNDS, `${name}-soft`], scheme) >= 4.5, name)
    for (const name of ['ink', 'ink-2', 'ink-3']) assert.ok(worst(name, ['warn-soft'], scheme) >= 4.5, `${name} in a question`)
    assert.ok(worst('bg', ['ink'], scheme) >= 4.5, 'primary button')
  })

  test(`${word}: the border of a control has a contrast of 3`, () => {
    assert.ok(worst('edge', GROUNDS, scheme) >= 3)
  })
}

test('no colour stands outside the tokens', () => {
  for (const file of readdirSync(WEB, { recursive: true }).filter((name) => /\.(js|html|css)$/.test(name) && name !== 'tokens.js')) {
    const found = readFileSync(new URL(file, WEB), 'utf8').match(/#[0-9a-f]{6}\b|\b(rgb|hsl|oklch)a?\(/gi)
    assert.equal(found, null, file)
  }
})

test('nothing is ever put into a page as markup', () => {
  for (const file of readdirSync(WEB, { recursive: true }).filter((name) => name.endsWith('.js'))) {
    assert.doesNotMatch(readFileSync(new URL(file, WEB), 'utf8'), /innerHTML|outerHTML|insertAdjacentHTML|document\.write/, file)
  }
})
